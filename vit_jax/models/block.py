"""Blocks of the Transformer encoder: the standard block, and the block with axial attention."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.activations import split_by_example
from vit_jax.models.attention import Attention
from vit_jax.models.dropout import Dropout
from vit_jax.models.gelu import FORMS
from vit_jax.models.norm import EPSILON, LayerNorm
from vit_jax.models.positions import PositionEmbedding


class MlpBlock(nn.Module):
  """Two dense layers with GELU between."""

  mlp_dim: int
  dropout: float
  dtype: jnp.dtype
  activation: str = "gelu_tanh"

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""

    def dense(size, name):
      return nn.Dense(
        size,
        dtype=self.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        bias_init=nn.initializers.normal(1e-6),
        name=name,
      )

    drop = Dropout(self.dropout)
    hidden = drop(FORMS[self.activation](dense(self.mlp_dim, "Dense_0")(x)), train=train)
    return drop(dense(x.shape[-1], "Dense_1")(hidden), train=train)


class EncoderBlock(nn.Module):
  """One pre-norm block: z' = MSA(LN(z)) + z, then MLP(LN(z')) + z' (equations 2 and 3).

  Attributes:
    mlp_dim, heads, dropout, dtype, attention, activation, norm_epsilon: as in
      vit_jax.models.vit.ViT.
    relative: relative position embeddings.
    position: fields of this block's own `PositionEmbedding`, or None.
  """

  mlp_dim: int
  heads: int
  dropout: float
  dtype: jnp.dtype
  attention: str
  activation: str = "gelu_tanh"
  norm_epsilon: float = EPSILON
  relative: bool = False
  position: dict | None = None

  @nn.compact
  def __call__(self, x: jax.Array, shared: jax.Array | None, train: bool):
    """(B, N, D) and position embeddings shared by all blocks -> (B, N, D) and None.

    `nn.scan` requires a pair.
    """
    x = add_positions(split_by_example(x), shared, self.position)
    y = LayerNorm(self.dtype, self.norm_epsilon, name="LayerNorm_0")(x)
    y = Attention(
      self.heads,
      self.dtype,
      self.attention,
      self.relative,
      name="MultiHeadDotProductAttention_1",
    )(y)
    x = x + Dropout(self.dropout)(y, train=train)
    y = LayerNorm(self.dtype, self.norm_epsilon, name="LayerNorm_2")(x)
    mlp = MlpBlock(self.mlp_dim, self.dropout, self.dtype, self.activation, name="MlpBlock_3")
    y = mlp(y, train=train)
    return x + y, None


class AxialBlock(nn.Module):
  """A block over the rows of the grid, then one over its columns (Appendix D.6).

  Attributes:
    grid: rows and columns of tokens; there is no class token.
    options: fields of both `EncoderBlock`s.
    position: as in `EncoderBlock`.
  """

  grid: tuple[int, int]
  options: dict
  position: dict | None = None

  @nn.compact
  def __call__(self, x: jax.Array, shared: jax.Array | None, train: bool):
    """As `EncoderBlock`; the tokens are those of the grid in raster order."""
    batch, _, width = x.shape
    rows, columns = self.grid
    x = add_positions(x, shared, self.position)
    x = x.reshape(batch * rows, columns, width)
    x, _ = EncoderBlock(**self.options, name="row")(x, None, train)
    x = x.reshape(batch, rows, columns, width).swapaxes(1, 2).reshape(-1, rows, width)
    x, _ = EncoderBlock(**self.options, name="column")(x, None, train)
    x = x.reshape(batch, columns, rows, width).swapaxes(1, 2)
    return x.reshape(batch, rows * columns, width), None


def add_positions(x: jax.Array, shared: jax.Array | None, own: dict | None) -> jax.Array:
  """Adds the shared position embeddings and the calling block's own to the tokens, if given."""
  if shared is not None:
    x = x + shared.astype(x.dtype)
  if own is not None:
    x = x + PositionEmbedding(**own, name="posembed_input")().astype(x.dtype)
  return x
