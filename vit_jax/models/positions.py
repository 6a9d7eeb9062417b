"""Position embeddings for the stem and for the inputs of layers (Appendix D.4, Table 8).

Relative embeddings change the attention weights instead; they are in attention.py.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp


class PositionEmbedding(nn.Module):
  """A learned table with one vector for each token.

  Attributes:
    kind: "1d", one vector for each token, those before the patches first, then the patches in
      raster order; or "2d", a vector of size D/2 for each row of the grid and one for each column,
      concatenated. In "2d" the tokens before the patches, which have no position, get zeros.
    grid: rows and columns of patches.
    before: tokens before those of the patches, such as the class token.
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
    init = nn.initializers.normal(0.02)
    if self.kind == "1d":
      shape = (1, self.before + rows * columns, self.width)
      return self.param("pos_embedding", init, shape)
    shape = (rows, columns, self.width // 2)
    row = self.param("pos_embedding_row", init, (rows, self.width // 2))
    column = self.param("pos_embedding_column", init, (columns, self.width // 2))
    table = jnp.concatenate(
      [jnp.broadcast_to(row[:, None], shape), jnp.broadcast_to(column[None], shape)], axis=-1
    ).reshape(1, rows * columns, self.width)
    return jnp.pad(table, ((0, 0), (self.before, 0), (0, 0)))
