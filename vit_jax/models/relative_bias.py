"""Biases of attention logits by the offset of two patches in rows and columns.

The paper's own relative embeddings (Appendix D.4) are products with queries, along one axis; see
`attention.Attention`.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("relative_table", "relative_mlp")
TABLE = "pos_embedding_bias"  # name of the parameter of "relative_table"


class RelativeBias(nn.Module):
  """A bias for each head and pair of tokens.

  Attributes:
    kind: "relative_table", a learned bias for each offset in rows and columns (Liu et al., "Swin
      Transformer", 2021, arXiv 2103.14030, equation 4), and, with a class token, one for it as the
      query, one for it as the key and one for both (Bao et al., "BEiT", 2022); or "relative_mlp",
      an MLP of sign(d) log(1 + |d|) of both offsets d (Liu et al., "Swin Transformer V2", 2022,
      arXiv 2111.09883, equations 3 and 4), and 0 for the class token.
    grid: rows and columns of patches.
    before: tokens before the patches: none or a class token.
    heads: of the attention.
    hidden: channels of the hidden layer of that MLP.
  """

  kind: str
  grid: tuple[int, int]
  before: int
  heads: int
  hidden: int

  @nn.compact
  def __call__(self) -> jax.Array:
    """(1, heads, before + N, before + N) float32."""
    rows, columns = self.grid
    offsets = (2 * rows - 1) * (2 * columns - 1)
    if self.kind == "relative_table":
      shape = (offsets + 3 * self.before, self.heads)
      table = self.param(TABLE, nn.initializers.zeros, shape)
      bias = table[offset_index(self.grid, self.before)]
      return bias.transpose(2, 0, 1)[None]
    hidden = nn.relu(nn.Dense(self.hidden, name="Dense_0")(log_offsets(self.grid)))
    table = nn.Dense(self.heads, name="Dense_1")(hidden)
    bias = table[offset_index(self.grid, 0)].transpose(2, 0, 1)[None]
    return jnp.pad(bias, ((0, 0), (0, 0), (self.before, 0), (self.before, 0)))


def offset_index(grid: tuple[int, int], before: int) -> np.ndarray:
  """(before + N, before + N): for query and key, the place of their offset in the table.

  Offsets are query minus key, in raster order from the most negative. With a class token the last
  three places are for it as the query, as the key, and as both.
  """
  rows, columns = grid
  row, column = (x.reshape(-1) for x in np.indices(grid))
  down = row[:, None] - row + rows - 1
  right = column[:, None] - column + columns - 1
  index = np.pad(down * (2 * columns - 1) + right, (before, 0))
  if before:
    last = (2 * rows - 1) * (2 * columns - 1)
    index[0, :] = last
    index[:, 0] = last + 1
    index[0, 0] = last + 2
  return index


def log_offsets(grid: tuple[int, int]) -> np.ndarray:
  """(offsets, 2) float32: sign(d) log(1 + |d|) of the offsets in rows and columns."""
  rows, columns = grid
  axes = np.arange(1 - rows, rows), np.arange(1 - columns, columns)
  offsets = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
  return np.float32(np.sign(offsets) * np.log1p(np.abs(offsets)))
