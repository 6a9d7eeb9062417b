"""Attention weights of every head, which the model's blocks hand out."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import ScopeParamShapeError

from vit_jax.data.batches import normalize
from vit_jax.models import Network
from vit_jax.models.attention import HANDED_OUT
from vit_jax.models.stacking import unstack_blocks

MAX_OF_LAYER = 2**30  # bytes of the weights of one layer and one image
MAX_OF_ALL = 2**32  # bytes of the weights of all layers and images
# Stacked blocks hand out nothing, and cuDNN's attention only computes in bfloat16.
HANDS_OUT = {"scan": False, "attention": "xla"}


class Seen(NamedTuple):
  """The logits and attention weights of one forward pass.

  Attributes:
    logits: (B, num_classes).
    layers: the attention weights of each block, (B, heads, N, N) float32: image, head, query, key.
      Each block of an axial model has two arrays: along rows, (B, rows, heads, columns, columns),
      then along columns, (B, columns, heads, rows, rows).
    pooling: the attention weights of the pooling, (B, heads, 1, N), for pool="map"; else None.
  """

  logits: jax.Array
  layers: tuple[jax.Array, ...]
  pooling: jax.Array | None


def attention_weights(module: Network, params: dict, images) -> Iterator[np.ndarray]:
  """Attention weights softmax(q k^T / sqrt(D_h)) of every layer, from the first to the last.

  Source: Appendix A, equation 6. With relative position embeddings r (Appendix D.4) the weights are
  softmax(q (k + r)^T / sqrt(D_h)).

  Args:
    module: an `Inspectable` model (vit_jax/models/family.py); blocks may be stacked for scan.
    params: its parameters.
    images: (B, H, W, C), uint8 pixels or floats in [-1, 1].

  Yields:
    For each layer (B, heads, N, N) float32: image, head, query, key; rows sum to 1. Tokens are the
    model's `tokens_before`, such as the class token, and then the patches in raster order. For each
    block of an axial model two arrays: along rows (B, rows, heads, columns, columns), then along
    columns (B, columns, heads, rows, rows).

  Raises:
    ValueError: the model has no blocks, the images do not suit it, or the weights take more than
      1 GiB for a layer of one image, or 4 GiB for all layers and images.
  """
  images = pixels(images, module.channels)
  needed = check(module, images.shape[1:3]) * module.depth * len(images)
  if needed > MAX_OF_ALL:
    raise ValueError(
      f"the attention of {len(images)} images would take {needed / 2**30:.1f} GiB; the most is "
      f"{MAX_OF_ALL / 2**30:.0f} GiB: give fewer at a time."
    )
  for layer in look(module, on_device(params), images, all_layers):
    yield jax.device_get(layer)


def all_layers(seen: Seen) -> tuple[jax.Array, ...]:
  """The weights of all layers."""
  return seen.layers


def stream(
  module: Network,
  params: dict,
  images,
  of_seen: Callable[[Seen], Any],
  on_image: Callable[[], None],
) -> Iterator[Any]:
  """Runs the model on one image after the other, and yields `of_seen` of each forward pass.

  The function is compiled with the forward pass. So weights that it does not use are not computed,
  and the weights of all layers are never in memory together.

  Args:
    module, params, images: as in `attention_weights`, for any number of images.
    of_seen: traceable; equal functions share a compiled program.
    on_image: called after each image.

  Raises:
    ValueError: as `attention_weights`.
  """
  images = pixels(images, module.channels)
  params = on_device(params)
  check(module, images.shape[1:3])
  for i in range(len(images)):
    yield jax.device_get(look(module, params, images[i : i + 1], of_seen))
    on_image()


def look(module: Network, params: dict, images: np.ndarray, of_seen: Callable[[Seen], Any]) -> Any:
  """`of_seen` of one forward pass; takes the results of `on_device` and `pixels`."""
  with jax.default_matmul_precision("highest"), of_parameters(images):
    return _run(handing_out(module), of_seen, params, images)


@contextlib.contextmanager
def of_parameters(images: np.ndarray) -> Iterator[None]:
  """Around a forward pass on images (B, H, W, C).

  Raises:
    ValueError: the parameters are for images of another size, or not of the module.
  """
  try:
    yield
  except ScopeParamShapeError as error:
    height, width = images.shape[1:3]
    size = height if height == width else (height, width)
    raise ValueError(
      f"the parameters do not suit images of {height} x {width} pixels; take the module and the "
      f"parameters of model.at_size({size}), of a model that vit_jax.load gave ({error})."
    ) from error


def handing_out(module: Network) -> Network:
  """The module with blocks that are not stacked and an attention that hands out its weights."""
  fields = {field.name for field in dataclasses.fields(module)}
  return module.clone(**{name: value for name, value in HANDS_OUT.items() if name in fields})


def check_transparent(module: Network):
  """Checks that a model can be looked into.

  Raises:
    ValueError: it cannot.
  """
  if reason := module.why_opaque():
    raise ValueError(reason)


def check(module: Network, size: tuple[int, int]) -> int:
  """Checks that a model's attention for images of this height and width fits into memory.

  Returns:
    The bytes of the weights of one layer for one image.

  Raises:
    ValueError: the model cannot be looked into, or the weights of a layer take too much memory.
  """
  check_transparent(module)
  rows, columns = module.grid(*size)
  grids = module.attention_grids((rows, columns))
  tokens = module.tokens_before() + max(math.prod(each.grid) for each in grids)
  needed = 4 * module.heads * sum(max(each.lines, 1) for each in grids) * tokens**2
  if needed > MAX_OF_LAYER:
    raise ValueError(
      f"images of {size[0]} x {size[1]} pixels have {rows} x {columns} patches, and the attention "
      f"of one layer would take {needed / 2**30:.1f} GiB; the most is "
      f"{MAX_OF_LAYER / 2**30:.0f} GiB: choose smaller images."
    )
  return needed


def pixels(images, channels: int) -> np.ndarray:
  """The images as an array, checked; `channels` is that of the model.

  Raises:
    ValueError: the shape is not (B, H, W, channels), there are no images, or their values are not
      pixels.
  """
  images = np.asarray(images)
  if images.ndim != 4 or images.shape[-1] != channels or not len(images):
    raise ValueError(
      f"images have the shape {images.shape}; it must be (B, H, W, {channels}), B at least 1."
    )
  if images.dtype == np.uint8:
    return images
  if not np.issubdtype(images.dtype, np.floating) or not np.abs(images).max() <= 1.001:
    raise ValueError(
      f"images are {images.dtype} with values from {images.min()} to {images.max()}; they must be "
      "uint8 pixels, or floats from -1 to 1."
    )
  return images.astype(np.float32)


def on_device(params: dict) -> dict:
  """The parameters on the device, with unstacked blocks."""
  return jax.device_put(unstack_blocks(params))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _run(module, of_seen, params, images):
  grids = module.attention_grids(module.grid(*images.shape[1:3]))
  if images.dtype == jnp.uint8:
    images = normalize(images, module.dtype)
  (logits, _), kept = module.apply(
    {"params": params}, images, train=False, mutable=["intermediates"]
  )
  try:
    kept = kept["intermediates"]
    layers = [
      _in_lines(handed[HANDED_OUT][0], grids[i % len(grids)].lines)
      for i, handed in enumerate(module.attentions(kept))
    ]
    of_pooling = module.pooling(kept)
    pooled = of_pooling and of_pooling[HANDED_OUT][0]
  except KeyError as error:
    raise ValueError(
      f"an attention of {type(module).__name__} hands out no weights ({error}); its module must "
      "call `vit_jax.models.attention.hand_out`, and lie where `attentions` of the model looks."
    ) from error
  return of_seen(Seen(logits, tuple(layers), pooled))


def _in_lines(weights: jax.Array, lines: int) -> jax.Array:
  """(B, heads, N, N); or (B, lines, heads, N, N) if each row or column attends to itself alone."""
  if not lines:
    return weights
  return weights.reshape(-1, lines, *weights.shape[1:])
