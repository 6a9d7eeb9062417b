"""Convolutions with standardised weights (Section 4.1), and their GroupNorm.

The two published families of ResNets compute the standard deviation in two ways, which differ by up
to 5e-4. So there are two functions.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp


def standardize_stem(kernel: jax.Array) -> jax.Array:
  """(w - mean) / (std + 1e-5) for each output channel of (h, w, in, out); used by hybrids."""
  centred = kernel - kernel.mean(axis=(0, 1, 2))
  return centred / (jnp.sqrt(jnp.square(centred).mean(axis=(0, 1, 2))) + 1e-5)


def standardize_bit(kernel: jax.Array) -> jax.Array:
  """(w - mean) / sqrt(var + 1e-10) for each output channel of (h, w, in, out); used by BiT."""
  centred = kernel - kernel.mean(axis=(0, 1, 2))
  return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=(0, 1, 2)) + 1e-10)


class StandardizedConv(nn.Module):
  """A convolution with standardised weights and no bias; they are standardised in float32."""

  features: int
  size: int
  stride: int
  padding: str | Sequence[tuple[int, int]]
  standardize: Callable
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C) -> (B, H', W', features)."""
    shape = (self.size, self.size, x.shape[-1], self.features)
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
    kernel = self.standardize(kernel.astype(jnp.float32))
    return jax.lax.conv_general_dilated(
      x,
      kernel.astype(self.dtype),
      (self.stride, self.stride),
      self.padding,
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def group_norm(epsilon: float, dtype: jnp.dtype, name: str, scale_init=nn.initializers.ones):
  """GroupNorm over 32 groups; its statistics are float32 and stay exact if means are large."""
  return nn.GroupNorm(
    num_groups=32,
    epsilon=epsilon,
    dtype=dtype,
    use_fast_variance=False,
    scale_init=scale_init,
    name=name,
  )
