"""The interface of a family of models.

To add a family, write a file that ends in a `Family`, and name it in `vit_jax.registry.FAMILIES`.
The modules of all families derive from `Network`. Other packages use a model only through this
interface, whatever its family. `vit_jax/models/resnet.py` is an example in one file.
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
  """A family of models: its names, and how a name or parameters determine a module.

  Attributes:
    module: the class of its models, a Flax module that derives from `Network`. Its fields are the
      options of `models.create`, and those that `config.Model` has too are settings.
    names: the names that `models.names()` lists.
    fields: (name) -> the fields of the module with this name; None: the family has no such name.
    recognise: (parameters, blocks unstacked) -> the fields that they determine; None: they belong
      to another family. Access errors, such as KeyError, mean that a parameter is missing.
    alike: (module) -> names of similar models, of which `models.settings_of` takes the nearest.
  """

  module: type
  names: tuple[str, ...]
  fields: Callable[[str], dict | None]
  recognise: Callable[[dict], dict | None]
  alike: Callable[["Network"], list[str]] = lambda module: []


class Network:
  """Base class of all models: the interface that the other packages use.

  A module is called with images (B, H, W, 3), floats in [-1, 1], and `train`. It returns logits
  (B, num_classes), float32, and features: "patches" (B, N, D), its output at each place of the
  image, and "pre_logits" (B, D), the input of its head. `features`, with the same arguments, gives
  the features alone, and needs no "head" among the parameters. Required are its fields
  `num_classes` and `dtype`, the type of the computation, `grid`, `feature_width` and `macs`.

  Attributes:
    sharding: rules that split its parameters over devices; see `vit_jax.devices.sharding`.
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
    """The largest side, up to `most`, of square images that suit the model; 0: none."""
    return most

  def usual_side(self) -> int:
    """An image side that suits any parameters of it; 0: parameters are for one image size."""
    return 0

  def side_of(self, params: dict) -> int:
    """The side in pixels of the square images that the parameters are for; 0: unknown."""
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

    def init(images):
      return self.init(jax.random.key(0), images, train=False)

    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    return jax.eval_shape(init, images)["params"]

  def macs(self, height: int, width: int) -> int:
    """Multiply-adds of one image's forward pass; only matmuls and convolutions count.

    Products with zero padding do not count, as in XLA's count and in the paper's Table 6.
    """
    raise NotImplementedError

  # Each gives the reason why a model cannot do something, as the end of a sentence; "" if it can.
  # A model that can must have the members of the class that the docstring names.

  def why_not_masked(self) -> str:
    """Why it cannot learn by masked patch prediction; "" for a `Maskable` model."""
    return (
      "it has no patch embeddings to corrupt; give a ViT, such as --config.model.name=ViT-B/16."
    )

  def why_opaque(self) -> str:
    """Why its inside cannot be shown (filters, attention); "" for an `Inspectable` model."""
    return f"these weights are of a {type(self).__name__}, which shows nothing of its inside."

  def why_no_map(self) -> str:
    """Why an `Inspectable` model's attention gives no maps over the image; "" if it does."""
    return ""


class Maskable:
  """The interface that masked patch prediction needs: the stages up to the encoder's output.

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
    """As `macs`, for these stages only."""


class AttentionGrid(NamedTuple):
  """The patches that attend to each other in one attention.

  Attributes:
    grid: rows and columns of these patches.
    lines: number of rows or columns of the image that attend separately; 0: the whole image is one.
    name: the direction, " rows" or " columns"; "" for the whole image.
  """

  grid: tuple[int, int]
  lines: int = 0
  name: str = ""


class Inspectable:
  """The interface that the inspection of a model needs.

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
    """The number of tokens before the patches; the patches come last, in raster order."""

  def attention_grids(self, grid: tuple[int, int]) -> tuple["AttentionGrid", ...]:
    """The grid of each attention of a block, for images with this grid of patches."""

  def attentions(self, tree: dict) -> list[dict]:
    """The subtree of each attention, from the first layer to the last.

    Each holds its attention weights (`vit_jax.models.attention.hand_out`).

    Args:
      tree: Flax's intermediates; blocks unstacked.
    """

  def pooling(self, tree: dict) -> dict | None:
    """As `attentions`, for the attention that pools the patches; None if there is none."""

  def filters(self, params: dict) -> jax.Array:
    """The filters of the first layer, applied to pixels, (P, P, 3, D)."""

  def filters_in_words(self) -> str:
    """The name of the layer with these filters."""

  def position_tables(self, params: dict, grid: tuple[int, int]) -> dict[str, jax.Array]:
    """{place: position embeddings (N, D) of the patches}; {} if there are none or relative ones."""


def check_sizes(model: Network, name: str, *keys: str):
  """Checks that sizes of a model are not 0; 0 is for models without the layers in question.

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
