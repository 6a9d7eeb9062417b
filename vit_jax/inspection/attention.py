"""Attention weights of every head, computed from the queries and keys that the model computes.

The model's own code runs without a change: Flax keeps the outputs of the modules called "query" and
"key", and the softmax is computed from them again, in float32.
"""

import functools
import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.device import normalize
from vit_jax.models import Network
from vit_jax.models.attention import relative_logits
from vit_jax.models.stacking import unstack_blocks

MAX_BYTES = 2**29  # of queries, keys and weights that are kept at a time
MAX_IMAGES = 32
MAX_OF_LAYER = 2**30  # bytes of the weights of one layer and one image


class Projections(NamedTuple):
  """What the weights of one attention are computed from.

  Attributes:
    query: (B, N, heads, D_h); in axial models (B * lines, N, heads, D_h).
    key: (B, M, heads, D_h), or as `query`.
    table: relative position embeddings (2 N - 1, heads, D_h), or None.
    lines: rows or columns of the grid, of which each is attended to alone; 0: all tokens together.
  """

  query: jax.Array
  key: jax.Array
  table: jax.Array | None = None
  lines: int = 0


class Seen(NamedTuple):
  """What one forward pass shows.

  Attributes:
    logits: (B, num_classes).
    layers: the attention of each block; in axial models, rows and then columns of each block.
    pooling: the attention of the pooled output to the tokens, for pool="map"; else None.
  """

  logits: jax.Array
  layers: tuple[Projections, ...]
  pooling: Projections | None


def attention_weights(module: Network, params: dict, images) -> Iterator[np.ndarray]:
  """Attention weights softmax(q k^T / sqrt(D_h)) of every layer, from the first to the last.

  The softmax of Appendix A, equation 6; with relative position embeddings r (Appendix D.4) it is
  that of q (k + r)^T / sqrt(D_h). Only one layer's weights are in memory at a time.

  Args:
    module: a `Transparent` one (vit_jax/models/family.py); blocks may be stacked for scan.
    params: its parameters.
    images: (B, H, W, 3), uint8 pixels or floats in [-1, 1].

  Yields:
    For each layer (B, heads, N, N) float32: image, head, query, key; rows sum to 1. Tokens are the
    class token, if the model has one, and then the patches in raster order. For each block of an
    axial model two arrays: along rows (B, rows, heads, columns, columns), then along columns
    (B, columns, heads, rows, rows).

  Raises:
    ValueError: the model has no blocks, the images do not suit it, or they have so many patches
      that the weights of a layer take more than 1 GiB.
  """
  images = pixels(images)
  check(module, images.shape[1:3])
  seen = look(module, on_device(params), images)
  for layer in seen.layers:
    yield jax.device_get(weights(layer))


def stream(module: Network, params: dict, images) -> Iterator[tuple[Seen, int]]:
  """What the model shows of a few images at a time, so that the memory is bounded.

  Args:
    module, params, images: as in `attention_weights`, for any number of images.

  Yields:
    What is seen of some images, and their number; further rows are blank images.

  Raises:
    ValueError: as `attention_weights`.
  """
  images = pixels(images)
  check(module, images.shape[1:3])
  count = min(at_a_time(module, images.shape[1:3]), len(images))
  params = on_device(params)
  for some, counted in batches(images, count):
    yield look(module, params, some), counted


def look(module: Network, params: dict, images: np.ndarray) -> Seen:
  """One forward pass over some images; the result of `on_device`, and that of `pixels`."""
  with jax.default_matmul_precision("highest"):
    logits, kept = _run(single(module), params, images)
  grids = module.attention_grids(module.grid(*images.shape[1:3]))
  pairs = zip(module.attentions(kept), module.attentions(params), strict=True)
  layers = tuple(
    Projections(*_outputs(seen), own.get("pos_embedding_relative"), grids[i % len(grids)].lines)
    for i, (seen, own) in enumerate(pairs)
  )
  pooling = module.pooling(kept)
  return Seen(logits, layers, pooling and Projections(*_outputs(pooling)))


def weights(read: Projections) -> jax.Array:
  """Attention weights (B, heads, N, M), or (B, lines, heads, N, N), from queries and keys."""
  with jax.default_matmul_precision("highest"):
    attention = _softmax(read.query, read.key, read.table)
  return attention.reshape(-1, read.lines, *attention.shape[1:]) if read.lines else attention


def check_transparent(module: Network):
  """Checks that a model can be looked into.

  Raises:
    ValueError: it cannot.
  """
  if reason := module.why_opaque():
    raise ValueError(reason)


def check(module: Network, size: tuple[int, int]):
  """Checks that a model has attention that can be held, for images of this height and width.

  Raises:
    ValueError: it cannot be looked into, or the weights of a layer take too much memory.
  """
  check_transparent(module)
  rows, columns = module.grid(*size)
  grids = module.attention_grids((rows, columns))
  tokens = max(math.prod(each.grid) + (not each.lines) for each in grids)  # and a class token
  needed = 4 * module.heads * sum(max(each.lines, 1) for each in grids) * tokens**2
  if needed > MAX_OF_LAYER:
    raise ValueError(
      f"images of {size[0]} x {size[1]} pixels have {rows} x {columns} patches, and the attention "
      f"of one layer would take {needed / 2**30:.1f} GiB; the most is "
      f"{MAX_OF_LAYER / 2**30:.0f} GiB: choose smaller images."
    )


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


def batches(images: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
  """Batches of `size` images and the number that counts; blank images fill up the last batch.

  So the memory is bounded, and one program is compiled.
  """
  for begin in range(0, len(images), size):
    some = images[begin : begin + size]
    blank = np.zeros((size - len(some), *images.shape[1:]), images.dtype)
    yield np.concatenate([some, blank]), len(some)


def on_device(params: dict) -> dict:
  """The parameters with single blocks, on the device."""
  return jax.device_put(unstack_blocks(params))


def single(module: Network) -> Network:
  """The same model with single blocks, in which nothing is computed twice."""
  return module.clone(scan=False, remat="none")


def at_a_time(module: Network, size: tuple[int, int]) -> int:
  """The number of images of this size, height and width, that are looked at together."""
  rows, columns = module.grid(*size)
  tokens = rows * columns + 1
  each = 4 * (2 * module.depth * tokens * module.width + 3 * module.heads * tokens**2)
  return min(max(MAX_BYTES // each, 1), MAX_IMAGES)


@functools.partial(jax.jit, static_argnums=0)
def _run(module, params, images):
  """The logits, and the outputs of all queries and keys."""
  if images.dtype == jnp.uint8:
    images = normalize(images, module.dtype)
  (logits, _), kept = module.apply(
    {"params": params},
    images,
    train=False,
    capture_intermediates=lambda inner, _: inner.name in ("query", "key"),
    mutable=["intermediates"],
  )
  return logits, kept["intermediates"]


def _outputs(kept: dict) -> list[jax.Array]:
  return [kept[name]["__call__"][0] for name in ("query", "key")]


@jax.jit
def _softmax(query, key, table):
  query, key = query.astype(jnp.float32), key.astype(jnp.float32)
  logits = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
  if table is not None:
    logits += relative_logits(query, table.astype(jnp.float32))
  return jax.nn.softmax(logits, axis=-1)
