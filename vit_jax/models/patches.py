"""Patch embedding: one linear map of every patch (equation 1)."""

import flax.linen as nn
import jax
import jax.numpy as jnp


class PatchEmbedding(nn.Module):
  """x_p E + b for each P x P patch x_p of an image or of a map.

  This equals a P x P convolution with stride P. E is its kernel, (P, P, C, D) as in the published
  weights. For a convolution the TPU compiler puts the batch innermost and pads 8 images to 128; a
  matrix product avoids this.

  Attributes:
    patch: P.
    width: D.
    dtype: type of the computation.
  """

  patch: int
  width: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x: jax.Array) -> jax.Array:
    """(B, H, W, C), H and W divisible by P -> (B, H W / P^2, D), in raster order."""
    size, (batch, height, width, channels) = self.patch, x.shape
    shape = (size, size, channels, self.width)
    kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
    bias = self.param("bias", nn.initializers.zeros, (self.width,))
    x, kernel, bias = nn.dtypes.promote_dtype(x, kernel, bias, dtype=self.dtype)
    x = x.reshape(batch, height // size, size, width // size, size, channels)
    y = jnp.einsum("byixjc,ijcd->byxd", x, kernel) + bias
    return y.reshape(batch, -1, self.width)
