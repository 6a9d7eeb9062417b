"""The MLP of a block: the paper's (Section 3.1), and the gated one of later models."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.layers import ACTIVATIONS, EPSILON, NORMS, Dropout


class MlpBlock(nn.Module):
  """Two dense layers with an activation between.

  Attributes:
    mlp_dim: channels M of the hidden layer.
    dropout: rate, after each dense layer.
    dtype: type of the computation.
    activation: a key of `layers.ACTIVATIONS`.
    kind: a key of `KINDS`.
    hidden_norm: kind of the norm of the hidden layer, a key of `layers.NORMS`; "": none.
    norm_epsilon: of this norm.
    bias: whether the dense layers have biases.
  """

  mlp_dim: int
  dropout: float
  dtype: jnp.dtype
  activation: str = "gelu_tanh"
  kind: str = "plain"
  hidden_norm: str = ""
  norm_epsilon: float = EPSILON
  bias: bool = True

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    drop = Dropout(self.dropout)
    hidden = KINDS[self.kind](self, x)
    hidden = drop(hidden, train=train)
    if self.hidden_norm:
      norm = NORMS[self.hidden_norm](self.dtype, self.norm_epsilon, name="LayerNorm_hidden")
      hidden = norm(hidden)
    outputs = self.dense(x.shape[-1], "Dense_1")(hidden)
    return drop(outputs, train=train)

  @nn.nowrap
  def dense(self, size: int, name: str) -> nn.Dense:
    """A dense layer of this module."""
    return nn.Dense(
      size,
      use_bias=self.bias,
      dtype=self.dtype,
      kernel_init=nn.initializers.xavier_uniform(),
      bias_init=nn.initializers.normal(1e-6),
      name=name,
    )


def plain(mlp: MlpBlock, x: jax.Array) -> jax.Array:
  """act(x W + b): (B, N, D) -> (B, N, M), with the layer Dense_0."""
  return ACTIVATIONS[mlp.activation](mlp.dense(mlp.mlp_dim, "Dense_0")(x))


def gated(mlp: MlpBlock, x: jax.Array) -> jax.Array:
  """act(x W + b) * (x V + c): (B, N, D) -> (B, N, M), with the layers Dense_gate and Dense_0.

  With the activation "silu" it is SwiGLU: Shazeer, "GLU variants improve Transformer", 2020 (arXiv
  2002.05202, equations 5 and 6).
  """
  gate = ACTIVATIONS[mlp.activation](mlp.dense(mlp.mlp_dim, "Dense_gate")(x))
  return gate * mlp.dense(mlp.mlp_dim, "Dense_0")(x)


KINDS = {"plain": plain, "gated": gated}
MATMULS = {"plain": 2, "gated": 3}  # of D x M for each token
