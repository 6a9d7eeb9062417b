"""Multi-head self-attention (Appendix A of the paper)."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class SelfAttention(nn.Module):
  """softmax(q k^T / sqrt(D_h)) v per head, then one projection of all heads.

  Parameters are named and shaped as in the published weights: query, key and value
  (D, heads, D_h), out (heads, D_h, D). The softmax is computed in float32.
  """

  heads: int
  dtype: jnp.dtype
  implementation: str = "xla"

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, N, D) -> (B, N, D)."""
    width = x.shape[-1]

    def project(name):
      return nn.DenseGeneral(
        (self.heads, width // self.heads),
        dtype=self.dtype,
        kernel_init=nn.initializers.xavier_uniform(),
        name=name,
      )(x)

    y = jax.nn.dot_product_attention(
      project("query"), project("key"), project("value"), implementation=self.implementation
    )
    return nn.DenseGeneral(
      width,
      axis=(-2, -1),
      dtype=self.dtype,
      kernel_init=nn.initializers.xavier_uniform(),
      name="out",
    )(y)
