"""Attention pooling: a learned query attends to the tokens, as in weights of big_vision."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import Attention
from vit_jax.models.block import MlpBlock
from vit_jax.models.norm import EPSILON, LayerNorm


class AttentionPooling(nn.Module):
  """y = MHA(probe, x); then y + MLP(LN(y))."""

  mlp_dim: int
  heads: int
  dtype: jnp.dtype
  attention: str
  activation: str = "gelu_tanh"
  norm_epsilon: float = EPSILON

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, D)."""
    probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, x.shape[-1]))
    probe = jnp.broadcast_to(probe.astype(x.dtype), (len(x), 1, x.shape[-1]))
    y = Attention(self.heads, self.dtype, self.attention, name="MultiHeadDotProductAttention_0")(
      probe, x
    )
    z = LayerNorm(self.dtype, self.norm_epsilon, name="LayerNorm_0")(y)
    mlp = MlpBlock(self.mlp_dim, 0.0, self.dtype, self.activation, name="MlpBlock_0")
    y = y + mlp(z, train=False)
    return y[:, 0]
