"""The interface of a family of models, and what a model requires of images and devices.

To add a family, write a file that ends in a `Family`, and name it in `vit_jax.registry.FAMILIES`.
The modules of all families derive from `Network`. Other packages use a model only through this
interface, whatever its family. `vit_jax/models/resnet.py` is an example in one file.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config import MAX_SIDE, ConfigError, Size, as_size, in_pixels, sides
from vit_jax.config.fields import AUTO
from vit_jax.devices.mesh import ALL_LARGEST
from vit_jax.models.attention import Attention
from vit_jax.process import program


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

  A module is called with images (B, H, W, C), floats in [-1, 1], and `train`. It returns logits
  (B, num_classes), float32, and features: "patches" (B, N, D), its output at each place of the
  image, and "pre_logits" (B, D), the input of its head. `features`, with the same arguments, gives
  the features alone, and needs no "head" among the parameters. Required are its fields
  `num_classes` and `dtype`, the type of the computation, `grid`, `feature_width` and `macs`.

  Attributes:
    sharding: rules that split its parameters over devices; see `vit_jax.devices.mesh`.
    channels: of the images; a field of modules that take others than RGB.
  """

  sharding = ALL_LARGEST
  channels = 3

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

  def stride(self) -> Size:
    """Pixels from one patch to the next."""
    return 1

  def largest_side(self, most: int) -> int:
    """The largest side, up to `most`, of square images that suit the model; 0: none."""
    return most

  def usual_side(self) -> int:
    """An image side that suits any parameters of it; 0: parameters are for one image size."""
    return 0

  def size_of(self, params: dict) -> Size:
    """The size of the images that the parameters are for; 0: unknown."""
    del params
    return 0

  def tiles(self, size: Size) -> bool:
    """Whether the model takes images of this size."""
    try:
      self.grid(*sides(size))
    except ValueError:
      return False
    return True

  def feature_width(self) -> int:
    """The size of "pre_logits"."""
    raise NotImplementedError

  def pooled_as(self, other: "Network") -> "Network":
    """This model with the pooling and the final norm of another one, if their tokens are alike."""
    del other
    return self

  # Cost.

  def parameter_shapes(self, size: Size) -> dict:
    """The tree of parameters as shapes and types, for images of this size; uses no device."""

    def init(images):
      return self.init(jax.random.key(0), images, train=False)

    images = jax.ShapeDtypeStruct((1, *sides(size), self.channels), jnp.float32)
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

  def why_not_in_part(self) -> str:
    """Why it cannot encode some of the patches alone; "" for a `Maskable` model that can."""
    return self.why_not_masked()

  def why_no_layers(self) -> str:
    """Why the outputs of its single blocks give no features; "" for a `Layered` model."""
    return f"a {type(self).__name__} has no blocks of one width"

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
    """Tokens -> tokens; if `why_not_in_part` gives no reason, also without some of the patches."""

  def patches(self, x: jax.Array) -> jax.Array:
    """The tokens that belong to patches."""

  def encoder_macs(self, height: int, width: int, patches: int | None = None) -> int:
    """As `macs`, for these stages only, with all or so many patches in the blocks."""


class Layered(Maskable):
  """The interface that features of single blocks need; `depth` is the number of blocks."""

  depth: int

  def first(self, blocks: int) -> "Network":
    """The model of the first so many blocks, with the same parameters."""

  def has_class_token(self) -> bool:
    """Whether the first token is a learned one that the final norm is for."""

  def normed(self, y: jax.Array) -> jax.Array:
    """(..., width) -> (..., width): the norm of pooled vectors, if the model has one."""


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
    pool: how tokens become "pre_logits": those that `read_tokens` gives, or those of the attention
      that `pooling` gives.
  """

  depth: int
  width: int
  heads: int
  pool: str

  def tokens_before(self) -> int:
    """The number of tokens before the patches; the patches come last, in raster order."""

  def read_tokens(self) -> slice:
    """The tokens that the head reads, or whose mean it reads; the patches for `pooling`."""

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
    if min(sides(getattr(model, key))) < 1:
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


AMPERE = 8  # compute capability 8.x
HOPPER = 9  # compute capability 9.0
MOST_CHANNELS = 128  # of a head that cuDNN computes before HOPPER; from there on twice as many
USE_XLA = "use --config.model.attention=xla"
NOT_IN_FLOAT32 = (
  "config.model.attention='cudnn' computes in bfloat16 only; set "
  f"--config.model.compute_dtype=bfloat16, or {USE_XLA}."
)
# Seen on an H200 with JAX 0.11.2: the first step ends in "IndexError: raw_hash_map<>::at".
NOT_WITH_SAME_BITS = (
  "config.model.attention='cudnn' fails with XLA_FLAGS that ask GPUs for the same bits each time "
  f"(--xla_gpu_deterministic_ops, --xla_gpu_exclude_nondeterministic_ops); {USE_XLA}, or leave the "
  "flag out."
)


def check_tiles(module: Network, size: Size, whose: str):
  """Checks that the module's patches tile the images; `whose` names the model in the message.

  Raises:
    ConfigError: they do not.
  """
  if not size or module.tiles(size):
    return
  below, above = (_tiled(module, size, step) for step in (-1, 1))
  raise ConfigError(
    f"config.data.image_size={in_pixels(size, 'x')} is not divisible into the patches of {whose}; "
    f"nearest: {', '.join(in_pixels(near, 'x') for near in (below, above) if near) or 'none'}."
  )


def _tiled(module: Network, size: Size, step: int) -> Size | None:
  """The nearest size with sides that the module tiles, searched in one direction; None: none."""
  other = module.largest_side(MAX_SIDE)  # it tiles this side, whichever it is
  axes = lambda side: (side, other), lambda side: (other, side)
  ends = {-1: 0, 1: MAX_SIDE + 1}
  searched = [range(side, ends[step], step) for side in sides(size)]
  found = [
    next((side for side in each if module.tiles(axis(side))), 0)
    for each, axis in zip(searched, axes, strict=True)
  ]
  return as_size(found) if all(found) else None


def largest_side(module: Network, most: int, whose: str) -> int:
  """The largest side up to `most` of square images that the module is meant for, pixels.

  Raises:
    ConfigError: there is none; `whose` names the model in the message.
  """
  side = module.largest_side(most)
  if not side:
    raise ConfigError(
      f"Images of {most} pixels are smaller than a patch of {whose}; the smallest size is "
      f"{module.stride()}."
    )
  return side


def check_attention(module: Network, size: Size, device: jax.Device):
  """Checks that cuDNN can compute the attention of a module, if the module asks for it.

  Args:
    module: with the type in which it computes.
    size: of the images, pixels.
    device: one of those that compute.

  Raises:
    ConfigError: cuDNN is asked for, and cannot.
  """
  if getattr(module, "attention", "xla") != "cudnn":
    return
  if reason := why_not_cudnn(module, size, device):
    raise ConfigError(reason)


def attention_on(module: Network, size: Size, device: jax.Device) -> str:
  """How the attention of a module is computed: "cudnn" where it can, else "xla".

  On CPUs it is "heads_first" in float32, where this is faster and no less exact.

  Args:
    module: with the type in which it computes.
    size: of the images, pixels.
    device: one of those that compute.
  """
  if not hasattr(module, "attention"):
    return "xla"
  if device.platform == "cpu" and module.dtype == jnp.float32:
    return "heads_first"
  if not why_not_cudnn(module, size, device):
    return "cudnn"
  return "xla"


def why_not_cudnn(module: Network, size: Size, device: jax.Device) -> str:
  """Why cuDNN cannot compute the attention of this model on this device; "" if it can.

  The conditions are those of `jax.nn.dot_product_attention`, except the one on the number of
  tokens, which the models make even.
  """
  if device.platform != "gpu":
    return (
      f"config.model.attention='cudnn' needs a GPU, and this is a {device.platform}; {USE_XLA}."
    )
  generation = device.compute_capability.partition(".")[0]
  if not generation.isdecimal() or int(generation) < AMPERE:
    return (
      "config.model.attention='cudnn' needs an NVIDIA GPU of compute capability "
      f"{AMPERE}.0 or higher, and this one has {device.compute_capability}; {USE_XLA}."
    )
  if jnp.dtype(module.dtype) == jnp.float32:
    return NOT_IN_FLOAT32
  if program.same_bits_on_gpus():
    return NOT_WITH_SAME_BITS
  if getattr(module, "differential", False) or getattr(module, "window", 0):
    return (
      "config.model.attention='cudnn' computes neither differential attention nor attention in "
      f"windows; {USE_XLA}."
    )
  most = 2 * MOST_CHANNELS if int(generation) >= HOPPER else MOST_CHANNELS
  for channels in sorted(head_channels(module, size)):
    if not fits_cudnn(channels, most):
      return (
        "config.model.attention='cudnn' needs heads with a multiple of 8 channels, on this GPU at "
        f"most {most}, and a head of this model has {channels}; {USE_XLA}, or another number of "
        "heads."
      )
  return ""


def fits_cudnn(channels: int, most: int = MOST_CHANNELS) -> bool:
  """Whether cuDNN computes attention with heads of so many channels, by default on all its GPUs."""
  return channels <= most and channels % 8 == 0


def check_type(attention: str, compute_dtype: str):
  """Checks that the chosen attention computes in this type.

  Raises:
    ConfigError: it does not.
  """
  if attention == "cudnn" and compute_dtype == "float32":
    raise ConfigError(NOT_IN_FLOAT32)


def head_channels(module: Network, size: Size) -> set[int]:
  """The channels of a head in every attention of a module; computes nothing."""
  channels = set()

  def noted(function, args, kwargs, context):
    inner = context.module
    if isinstance(inner, Attention) and context.method_name == "__call__":
      channels.add(args[0].shape[2] // inner.heads)
    return function(*args, **kwargs)

  with nn.intercept_methods(noted):
    module.clone(attention="xla").parameter_shapes(size)
  return channels
