"""Attention within windows of patches, and relative positions along rows and columns (SAM, ViTDet).

Source: Li et al., "Exploring plain Vision Transformer backbones for object detection", 2022 (arXiv
2203.16527, Section 3), and Kirillov et al., "Segment anything", 2023 (arXiv 2304.02643).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models.layers import LayerNorm

AXES = ("pos_embedding_rows", "pos_embedding_columns")  # names of the parameters
NECK_EPSILON = 1e-6


def divided(x: jax.Array, grid: tuple[int, int], side: int) -> jax.Array:
  """(B, N, D) of a grid, padded with zeros -> (B windows, side^2, D), in raster order."""
  rows, columns = (-(-count // side) for count in grid)
  batch, _, width = x.shape
  x = x.reshape(batch, *grid, width)
  missing = (rows * side - grid[0], columns * side - grid[1])
  x = jnp.pad(x, ((0, 0), (0, missing[0]), (0, missing[1]), (0, 0)))
  x = x.reshape(batch, rows, side, columns, side, width).swapaxes(2, 3)
  return x.reshape(-1, side * side, width)


def joined(x: jax.Array, grid: tuple[int, int], side: int) -> jax.Array:
  """The inverse of `divided`, without the padding."""
  rows, columns = (-(-count // side) for count in grid)
  width = x.shape[-1]
  x = x.reshape(-1, rows, columns, side, side, width).swapaxes(2, 3)
  x = x.reshape(-1, rows * side, columns * side, width)[:, : grid[0], : grid[1]]
  return x.reshape(len(x), -1, width)


def axis_logits(
  query: jax.Array, rows: jax.Array, columns: jax.Array, grid: tuple[int, int]
) -> jax.Array:
  """q r, with r the embedding of the offset in rows plus that in columns of query and key.

  Source: Li et al., "MViTv2", 2022 (arXiv 2112.01526, equation 4).

  Args:
    query: (B, N, heads, D_h), the patches of the grid.
    rows, columns: (2 rows - 1, D_h) and (2 columns - 1, D_h); offsets are query minus key, from the
      most negative.
    grid: rows and columns.

  Returns:
    (B, heads, N, N).
  """
  batch, tokens, heads, size = query.shape
  query = query.reshape(batch, *grid, heads, size)
  down, right = (np.arange(n)[:, None] - np.arange(n) + n - 1 for n in grid)
  along_rows = jnp.einsum("byxhd,ykd->bhyxk", query, rows.astype(query.dtype)[down])
  along_columns = jnp.einsum("byxhd,xkd->bhyxk", query, columns.astype(query.dtype)[right])
  logits = along_rows[..., :, None] + along_columns[..., None, :]
  return logits.reshape(batch, heads, tokens, tokens)


class Neck(nn.Module):
  """LayerNorm of the map, after a 1 x 1 convolution with its LayerNorm and a 3 x 3 one if asked.

  Attributes:
    channels: of the convolutions, which have no biases; 0: there are none.
    dtype: type of the computation.
  """

  channels: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array, grid: tuple[int, int]) -> jax.Array:
    """(B, N, D) -> (B, N, channels or D)."""
    x = x.reshape(len(x), *grid, -1)
    sizes = (1, 3) if self.channels else ()
    for i, size in enumerate(sizes):
      shape = (size, size)
      conv = nn.Conv(self.channels, shape, use_bias=False, dtype=self.dtype, name=f"Conv_{i}")
      x = LayerNorm(self.dtype, NECK_EPSILON, name=f"LayerNorm_{i}")(conv(x))
    if not sizes:
      x = LayerNorm(self.dtype, NECK_EPSILON, name="LayerNorm_0")(x)
    return x.reshape(len(x), grid[0] * grid[1], -1)
