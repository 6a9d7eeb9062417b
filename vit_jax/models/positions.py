"""Position embeddings that are added to tokens (Appendix D.4, Table 8), learned or fixed."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models.attention import padded

# Fixed embeddings of later papers, without parameters. The exponents of the frequencies go from 0
# to 1; the value says whether 1 is included (`wave`).
FIXED = {"sincos2d": True, "sincos2d_mae": False}
ADDED = ("1d", "2d", *FIXED)  # the kinds that are added to tokens
TEMPERATURE = 10_000


class PositionEmbedding(nn.Module):
  """A table with one vector for each token.

  Attributes:
    kind: "1d", one learned vector for each token, first for the tokens before the patches, then for
      the patches in raster order; or "2d", a learned vector of size D/2 for each row of the grid
      and one for each column, concatenated; or one of `FIXED`, a wave of size D/2 for the column
      and one for the row, concatenated. In all but "1d" the tokens before the patches have no
      position and get zeros.
    grid: rows and columns of patches.
    before: number of tokens before the patches, such as the class token.
    width: D.
  """

  kind: str
  grid: tuple[int, int]
  before: int
  width: int

  @nn.compact
  def __call__(self) -> jax.Array:
    """The table (1, before + N, D), float32."""
    rows, columns = self.grid
    half = self.width // 2
    init = nn.initializers.normal(0.02)
    if self.kind == "1d":
      shape = (1, self.before + rows * columns, self.width)
      return self.param("pos_embedding", init, shape)
    if self.kind == "2d":
      row = self.param("pos_embedding_row", init, (rows, half))
      column = self.param("pos_embedding_column", init, (columns, half))
      first = row[:, None]
      second = column[None]
    else:
      last = FIXED[self.kind]
      first = wave(columns, half, last=last)[None]
      second = wave(rows, half, last=last)[:, None]
    shape = (rows, columns, half)
    halves = [jnp.broadcast_to(first, shape), jnp.broadcast_to(second, shape)]
    table = jnp.concatenate(halves, axis=-1).reshape(1, rows * columns, self.width)
    return jnp.pad(table, ((0, 0), (self.before, 0), (0, 0)))


def wave(count: int, width: int, *, last: bool) -> np.ndarray:
  """Sines, then cosines, of the positions 0, 1, ... along one axis: (count, width), float32.

  The n = width / 2 frequencies are 10000^-e. With `last`, e = 0, 1 / (n - 1), ..., 1 (Beyer et al.,
  "Better plain ViT baselines for ImageNet-1k", 2022, in its published code); without,
  e = 0, 1 / n, ..., (n - 1) / n (Chen et al., "MoCo v3", 2021; He et al., "Masked autoencoders",
  2022, in their published codes).
  """
  exponents = np.linspace(0, 1, width // 2, endpoint=last)
  angles = np.arange(count)[:, None] * TEMPERATURE**-exponents
  return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def add_positions(x: jax.Array, shared: jax.Array | None, own: dict | None) -> jax.Array:
  """Adds the shared and the calling block's own position embeddings to the tokens, if given."""
  if shared is not None:
    x = x + padded(shared.astype(x.dtype), x.shape[1])
  if own is not None:
    own = PositionEmbedding(**own, name="posembed_input")()
    x = x + padded(own.astype(x.dtype), x.shape[1])
  return x
