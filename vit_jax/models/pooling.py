"""How tokens become the input of the head: the kinds of pooling, and attention pooling."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import Attention
from vit_jax.models.mlp import MlpBlock
from vit_jax.models.parts import Parts

# What becomes the input of the head, and the tokens that a model has for it.
CLASS_TOKEN = ("class_token", "distilled", "gap_beside_token", "map_with_token")
MAPS = ("map", "map_with_token", "map_of_all")  # attention pooling


class AttentionPooling(nn.Module):
  """A learned query attends to the tokens, as in big_vision: y = MHA(probe, x); y + MLP(LN(y)).

  The fields are those of `ViT`.
  """

  mlp_dim: int
  heads: int
  dtype: jnp.dtype
  attention: str
  activation: str
  norm_epsilon: float
  norm: str = "layer"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, D)."""
    probe = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, x.shape[-1]))
    probe = jnp.broadcast_to(probe.astype(x.dtype), (x.shape[0], 1, x.shape[-1]))
    attention = Attention(
      self.heads, self.dtype, self.attention, name="MultiHeadDotProductAttention_0"
    )
    y = attention(probe, x)
    z = Parts(norm=self.norm).norm_of(self.dtype, self.norm_epsilon, "LayerNorm_0")(y)
    mlp = MlpBlock(self.mlp_dim, 0.0, self.dtype, self.activation, name="MlpBlock_0")
    return (y + mlp(z, train=False))[:, 0]
