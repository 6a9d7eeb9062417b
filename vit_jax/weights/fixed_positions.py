"""Fixed position embeddings in files: other libraries read them as a table, this one computes them.

A file holds the table, so that whoever reads the arrays alone computes the same; the card says
that it is fixed.
"""

import numpy as np

from vit_jax.models.positions import FIXED, PositionEmbedding
from vit_jax.models.recognition import module_of
from vit_jax.weights.card import Card

_MODULE, _TABLE = "posembed_input", "pos_embedding"


def with_table(params: dict, card: Card) -> dict:
  """The parameters with the table that fixed positions of the card's model stand for, if any.

  Raises:
    ValueError: the size of the images is not known.
  """
  positions = card.model.positions
  if positions not in FIXED:
    return params
  if not card.image_size:
    raise ValueError("its fixed position embeddings need the size of its images; give it")
  module = module_of(params, card.model)
  grid = module.grid(card.image_size, card.image_size)
  table = PositionEmbedding(positions, grid, module.tokens_before(), module.width).apply({})
  encoder = params["Transformer"] | {_MODULE: {_TABLE: np.asarray(table)}}
  return params | {"Transformer": encoder}


def without_table(params: dict, card: Card | None) -> dict:
  """The parameters without a table that the card says is fixed.

  Raises:
    ValueError: the table is another one.
  """
  if not card or card.model.positions not in FIXED or _MODULE not in params.get("Transformer", {}):
    return params
  encoder = {name: x for name, x in params["Transformer"].items() if name != _MODULE}
  bare = params | {"Transformer": encoder}
  table, there = (
    np.asarray(tree["Transformer"][_MODULE][_TABLE]) for tree in (with_table(bare, card), params)
  )
  if table.shape != there.shape or not np.allclose(table, there, atol=1e-5):
    raise ValueError(
      f"its card says positions={card.model.positions!r}, and it holds other position embeddings"
    )
  return bare
