"""Attention weights of every head, as the blocks of the model hand them out."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.device import normalize
from vit_jax.models import Network
from vit_jax.models.attention import HANDED_OUT
from vit_jax.models.stacking import unstack_blocks

MAX_OF_LAYER = 2**30  # bytes of the weights of one layer and one image
MAX_OF_ALL = 2**32  # bytes of the weights of all layers and images
# Stacked blocks hand out nothing, and cuDNN's attention computes in bfloat16 only.
HANDS_OUT = {"scan": False, "attention": "xla"}


class Seen(NamedTuple):
  """What one forward pass over some images shows.

  Attributes:
    logits: (B, num_classes).
    layers: the attention weights of each block, (B, heads, N, N) float32: image, head, query, key.
      In axial models those along rows, (B, rows, heads, columns, columns), and then those along
      columns, (B, columns, heads, rows, rows), of each block.
    pooling: those of the pooled output, (B, heads, 1, N), for pool="map"; else None.
  """

  logits: jax.Array
  layers: tuple[jax.Array, ...]
  pooling: jax.Array | None


def attention_weights(module: Network, params: dict, images) -> Iterator[np.ndarray]:
  """Attention weights softmax(q k^T / sqrt(D_h)) of every layer, from the first to the last.

  The softmax of Appendix A, equation 6; with relative position embeddings r (Appendix D.4) it is
  that of q (k + r)^T / sqrt(D_h).

  Args:
    module: an `Inspectable` one (vit_jax/models/family.py); blocks may be stacked for scan.
    params: its parameters.
    images: (B, H, W, 3), uint8 pixels or floats in [-1, 1].

  Yields:
    For each layer (B, heads, N, N) float32: image, head, query, key; rows sum to 1. Tokens are the
    model's `tokens_before`, such as the class token, and then the patches in raster order. For each
    block of an axial model two arrays: along rows (B, rows, heads, columns, columns), then along
    columns (B, columns, heads, rows, rows).

  Raises:
    ValueError: the model has no blocks, the images do not suit it, or the weights take more than
      1 GiB for a layer of one image, or 4 GiB for all layers and images.
  """
  images = pixels(images)
  of_layer = check(module, images.shape[1:3])
  if (needed := of_layer * module.depth * len(images)) > MAX_OF_ALL:
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
  """What a function makes of what the model shows of one image after the other.

  The function is a part of the compiled forward pass, so that weights which it has no use for are
  not computed, and those of all layers are never held together.

  Args:
    module, params, images: as in `attention_weights`, for any number of images.
    of_seen: traceable; equal ones share a compiled program.
    on_image: called when an image is done.

  Raises:
    ValueError: as `attention_weights`.
  """
  images, params = pixels(images), on_device(params)
  check(module, images.shape[1:3])
  for i in range(len(images)):
    yield jax.device_get(look(module, params, images[i : i + 1], of_seen))
    on_image()


def look(module: Network, params: dict, images: np.ndarray, of_seen: Callable[[Seen], Any]) -> Any:
  """`of_seen` of one forward pass over some images; the results of `on_device` and `pixels`."""
  fields = {field.name for field in dataclasses.fields(module)}
  module = module.clone(**{name: x for name, x in HANDS_OUT.items() if name in fields})
  with jax.default_matmul_precision("highest"):
    return _run(module, of_seen, params, images)


def check_transparent(module: Network):
  """Checks that a model can be looked into.

  Raises:
    ValueError: it cannot.
  """
  if reason := module.why_opaque():
    raise ValueError(reason)


def check(module: Network, size: tuple[int, int]) -> int:
  """Checks that a model has attention that can be held, for images of this height and width.

  Returns:
    The bytes of the weights of a layer and an image.

  Raises:
    ValueError: it cannot be looked into, or the weights of a layer take too much memory.
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


def pixels(images) -> np.ndarray:
  """The images as an array, checked.

  Raises:
    ValueError: they are not (B, H, W, 3), there are none, or their values are not pixels.
  """
  images = np.asarray(images)
  if images.ndim != 4 or images.shape[-1] != 3 or not len(images):
    raise ValueError(
      f"images have the shape {images.shape}; it must be (B, H, W, 3), B at least 1."
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
  """The parameters with single blocks, on the device."""
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
  """(B, heads, N, N), or, if rows or columns are attended to alone, (B, lines, heads, N, N)."""
  return weights.reshape(-1, lines, *weights.shape[1:]) if lines else weights
