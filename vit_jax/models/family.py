"""What a family of models is. To add one, write a file that ends in a `Family`, and name it in
`vit_jax.registry.FAMILIES`.

The modules of all families derive from `Network`. Other packages ask a model for what they need,
and none of them asks which model it is. `vit_jax/models/resnet.py` is an example in one file.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.config.fields import AUTO
from vit_jax.devices.sharding import ALL_LARGEST


@dataclasses.dataclass(frozen=True)
class Family:
  """A family: its names, and the ways from a name and from parameters to a module.

  Attributes:
    module: the class of its models, a Flax module that derives from `Network`. Its fields are the
      options of `models.create`, and those that `config.Model` has too are settings.
    names: the names that `models.names()` lists.
    fields: (name) -> the fields of the module that a name of the family stands for; else None.
    recognise: (parameters, blocks unstacked) -> the fields that they determine; None: they are of
      another family. Errors of access, such as KeyError, mean that a parameter is missing.
    alike: (module) -> names of models like it, among which `models.settings_of` takes the nearest.
  """

  module: type
  names: tuple[str, ...]
  fields: Callable[[str], dict | None]
  recognise: Callable[[dict], dict | None]
  alike: Callable[["Network"], list[str]] = lambda module: []


class Network:
  """Base class of all models: what the other packages ask of a model.

  A module is called with images (B, H, W, 3), floats in [-1, 1], and `train`. It returns logits
  (B, num_classes), float32, and features: "patches" (B, N, D), its output at each place of the
  image, and "pre_logits" (B, D), the input of its head. `features`, with the same arguments, gives
  the features alone, and needs no "head" among the parameters. Required are its fields
  `num_classes` and `dtype`, the type of the computation, `grid`, `feature_width` and `macs`.

  Attributes:
    sharding: the rules by which its parameters are split over devices; see
      `vit_jax.devices.sharding`.
  """

  sharding = ALL_LARGEST

  def check(self, name: str):
    """Checks that fields do not contradict each other; `name` is for the message.

    Raises:
      ValueError: they do; the message begins with the field.
    """

  # Images.

  def grid(self, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of "patches" of an image.

    Raises:
      ValueError: the model does not take images of this size.
    """
    raise NotImplementedError

  def stride(self) -> int:
    """Pixels from one patch to the next."""
    return 1

  def largest_side(self, most: int) -> int:
    """The largest side up to `most` of square images that the model is meant for; 0: none."""
    return most

  def usual_side(self) -> int:
    """A side of images that suits all of its parameters; 0: they belong to one size of images."""
    return 0

  def side_of(self, params: dict) -> int:
    """The side of the square images that the parameters are for, pixels; 0: they do not tell."""
    del params
    return 0

  def tiles(self, side: int) -> bool:
    """Whether the model takes square images of this side."""
    try:
      self.grid(side, side)
    except ValueError:
      return False
    return True

  def feature_width(self) -> int:
    """The size of "pre_logits"."""
    raise NotImplementedError

  # Cost.

  def parameter_shapes(self, side: int) -> dict:
    """The tree of parameters as shapes and types, for images of `side` pixels; uses no device."""
    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    init = lambda images: self.init(jax.random.key(0), images, train=False)
    return jax.eval_shape(init, images)["params"]

  def macs(self, height: int, width: int) -> int:
    """Multiply-adds of one image's forward pass; only matmuls and convolutions count.

    Products with the zeros around a map are left out, as by XLA and in the paper's Table 6.
    """
    raise NotImplementedError

  # What a model cannot do, as the end of a sentence; "" if it can, and then it has the members of
  # the class that is named.

  def why_not_masked(self) -> str:
    """Why it cannot learn by masked patch prediction; otherwise it is `Maskable`."""
    return (
      "it has no patch embeddings to corrupt; give a ViT, such as --config.model.name=ViT-B/16."
    )

  def why_opaque(self) -> str:
    """Why its filters, position embeddings and attention cannot be shown; else `Inspectable`."""
    return f"these weights are of a {type(self).__name__}, which shows nothing of its inside."

  def why_no_map(self) -> str:
    """Why its attention, although it can be shown, makes no maps over the image."""
    return ""


class Maskable:
  """What masked patch prediction also needs: the stages of the model up to its encoder's output.

  The "patches" of `features` are `patches(encode(add_positions(embed(images), grid), grid))`.
  """

  width: int

  def embed(self, images: jax.Array) -> jax.Array:
    """Images (B, H, W, 3) -> a vector for each patch, (B, N, width)."""

  def add_positions(self, x: jax.Array, grid: tuple[int, int], *, train: bool) -> jax.Array:
    """Patches -> tokens with their positions."""

  def encode(self, x: jax.Array, grid: tuple[int, int], *, train: bool) -> jax.Array:
    """Tokens -> tokens."""

  def patches(self, x: jax.Array) -> jax.Array:
    """The tokens that belong to patches."""

  def encoder_macs(self, height: int, width: int) -> int:
    """As `macs`, of these stages."""


class AttentionGrid(NamedTuple):
  """The patches that one attention attends to together.

  Attributes:
    grid: their rows and columns.
    lines: if these are a row or a column of the image, how many there are; 0: they are the image.
    name: of the direction, " rows" or " columns"; "" for the whole image.
  """

  grid: tuple[int, int]
  lines: int = 0
  name: str = ""


class Inspectable:
  """What looking inside also needs.

  Attributes:
    depth, width, heads: of the blocks.
    pool: how tokens become "pre_logits": "class_token", the first; "gap", the mean of those of the
      patches; or "map", those of the patches by the attention that `pooling` gives.
  """

  depth: int
  width: int
  heads: int
  pool: str

  def tokens_before(self) -> int:
    """How many tokens stand before those of the patches, which are the last in raster order."""

  def attention_grids(self, grid: tuple[int, int]) -> tuple["AttentionGrid", ...]:
    """What each attention of a block attends to, for images with this grid of patches."""

  def attentions(self, tree: dict) -> list[dict]:
    """The subtree of each attention, from the first layer to the last.

    Each has handed out its weights (`vit_jax.models.attention.hand_out`).

    Args:
      tree: Flax's intermediates; blocks unstacked.
    """

  def pooling(self, tree: dict) -> dict | None:
    """As `attentions`, of the attention that pools the patches; None if there is none."""

  def filters(self, params: dict) -> jax.Array:
    """The filters that see the pixels, (P, P, 3, D)."""

  def filters_in_words(self) -> str:
    """The part of the model that they belong to."""

  def position_tables(self, params: dict, grid: tuple[int, int]) -> dict[str, jax.Array]:
    """{place: position embeddings (N, D) of the patches}; {} if none, or relative ones."""


def check_sizes(model: Network, name: str, *keys: str):
  """Checks that sizes of a model are not 0, which is for models that have no such part.

  Raises:
    ValueError: one is.
  """
  for key in keys:
    if getattr(model, key) < 1:
      raise ValueError(f"{key}=0 leaves nothing of {name}; give at least 1, or {AUTO}.")


def check_heads(model: Network, name: str):
  """Checks that the heads of a model, if it has any, divide its width.

  Raises:
    ValueError: they do not.
  """
  if model.heads and model.width % model.heads:
    divisors = [h for h in range(1, model.width + 1) if model.width % h == 0]
    near = min(divisors, key=lambda h: abs(h - model.heads))
    raise ValueError(
      f"heads={model.heads} does not divide the width {model.width} of {name}; nearest: {near}."
    )
