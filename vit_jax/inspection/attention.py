"""Attention weights of every head, computed from the queries and keys that the model computes.

The model's own code runs without a change: Flax keeps the outputs of the modules called "query" and
"key", or of the norms behind them, and the softmax is computed from them again, in float32.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.device import normalize
from vit_jax.models import Network
from vit_jax.models.attention import relative_logits
from vit_jax.models.stacking import unstack_blocks

QK_NORMS = {"query": "LayerNorm_query", "key": "LayerNorm_key"}  # which not all models have
KEPT = {*QK_NORMS, *QK_NORMS.values()}
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
  """What one forward pass over some images shows.

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
    model's `tokens_before`, such as the class token, and then the patches in raster order. For each
    block of an axial model two arrays: along rows (B, rows, heads, columns, columns), then along
    columns (B, columns, heads, rows, rows).

  Raises:
    ValueError: the model has no blocks, the images do not suit it, or they have so many patches
      that the weights of a layer take more than 1 GiB.
  """
  images = pixels(images)
  check(module, images.shape[1:3])
  seen = look(module, on_device(params), images)
  for layer in seen.layers:
    yield jax.device_get(weights(layer))


def stream(module: Network, params: dict, images, on_image: Callable[[], None]) -> Iterator[Seen]:
  """What the model shows of one image after the other; so the memory is bounded.

  Args:
    module, params, images: as in `attention_weights`, for any number of images.
    on_image: called when an image is done.

  Raises:
    ValueError: as `attention_weights`.
  """
  images, params = pixels(images), on_device(params)
  check(module, images.shape[1:3])
  for i in range(len(images)):
    yield look(module, params, images[i : i + 1])
    on_image()


def look(module: Network, params: dict, images: np.ndarray) -> Seen:
  """One forward pass over some images; the result of `on_device`, and that of `pixels`."""
  with jax.default_matmul_precision("highest"):
    logits, kept = _run(module.clone(scan=False, remat="none", attention="xla"), params, images)
  grids = module.attention_grids(module.grid(*images.shape[1:3]))
  pairs = zip(module.attentions(kept), module.attentions(params), strict=True)
  layers = tuple(
    Projections(*_outputs(seen), table.get("pos_embedding_relative"), grids[i % len(grids)].lines)
    for i, (seen, table) in enumerate(pairs)
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
  tokens = module.tokens_before() + max(math.prod(each.grid) for each in grids)
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


def on_device(params: dict) -> dict:
  """The parameters with single blocks, on the device."""
  return jax.device_put(unstack_blocks(params))


@functools.partial(jax.jit, static_argnums=0)
def _run(module, params, images):
  """The logits, and the outputs of all queries and keys."""
  if images.dtype == jnp.uint8:
    images = normalize(images, module.dtype)
  (logits, _), kept = module.apply(
    {"params": params},
    images,
    train=False,
    capture_intermediates=lambda inner, _: inner.name in KEPT,
    mutable=["intermediates"],
  )
  return logits, kept["intermediates"]


def _outputs(kept: dict) -> list[jax.Array]:
  last = (kept.get(norm, kept[name]) for name, norm in QK_NORMS.items())
  return [outputs["__call__"][0] for outputs in last]


@jax.jit
def _softmax(query, key, table):
  query, key = query.astype(jnp.float32), key.astype(jnp.float32)
  logits = jnp.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
  if table is not None:
    logits += relative_logits(query, table.astype(jnp.float32))
  return jax.nn.softmax(logits, axis=-1)
