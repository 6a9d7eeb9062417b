"""A model from weights: module, parameters and how images are prepared, at one image size."""

import dataclasses

import jax
import jax.numpy as jnp

from vit_jax import models
from vit_jax.weights import Weights, fit, told_by
from vit_jax.weights import module as module_of
from vit_jax.weights.card import Card
from vit_jax.weights.fit import Row


@dataclasses.dataclass(frozen=True)
class Loaded:
  """What `load` gives.

  Attributes:
    module: unrolled, in float32.
    params: NumPy arrays in the module's tree, for images of the card's size.
    card: how images are prepared for this size, and the classes.
    rows: what became of each parameter.
  """

  module: models.ViT | models.ResNet
  params: dict
  card: Card
  rows: list[Row]


def load(weights: Weights, side: int = 0) -> Loaded:
  """The model of weights, for square images of `side` pixels; 0: of the size that they are for.

  Position embeddings are resized for another size, and as large a share of each image is cut out.

  Raises:
    ValueError: no size is known, the model cannot see images of it, or a parameter is missing.
  """
  card = prepared(weights, side)
  module = module_of(weights)
  if not card.image_size:
    raise ValueError("the weights do not tell the size of their images")
  params, rows = at_size(module, weights.params, card.image_size)
  return Loaded(module, params, card, rows)


def prepared(weights: Weights, side: int = 0) -> Card:
  """How images of `side` pixels are prepared; 0: of the weights' own size, 0 where none is known.

  Raises:
    ValueError: parameters of no known model.
  """
  card = weights.card or told_by(weights.params)
  return card.at_size(side) if side else card


def at_size(
  module: models.ViT | models.ResNet,
  params: dict,
  side: int,
  outputs: tuple[int, ...] | None = None,
) -> tuple[dict, list[Row]]:
  """The parameters for square images of `side` pixels, and what became of each.

  Args:
    module: that the parameters are of, unrolled.
    params: our tree, blocks apart.
    side: pixels.
    outputs: as in `weights.fit`.

  Raises:
    ValueError: the model cannot see images of this size, or a parameter is missing or too many.
  """
  grid = module.grid(side, side) if isinstance(module, models.ViT) else None
  images = jnp.zeros((1, side, side, 3))
  wanted = jax.eval_shape(lambda: module.init(jax.random.key(0), images, train=False))
  return fit(params, wanted["params"], grid, outputs=outputs)
