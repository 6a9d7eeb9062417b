"""The classifier: one linear map from features to logits."""

import jax
import jax.numpy as jnp
from flax import linen as nn


class Head(nn.Module):
  """y W + b; products in the type of the computation, sums in float32.

  Attributes:
    num_classes: number of logits.
    bias: initial value of b; W starts at zero (Section 3.2).
    dtype: type of the computation; parameters are float32.
  """

  num_classes: int
  bias: float
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, y: jax.Array) -> jax.Array:
    """(B, D) -> logits (B, num_classes) float32."""
    shape = y.shape[-1], self.num_classes
    kernel = self.param("kernel", nn.initializers.zeros, shape)
    bias = self.param("bias", nn.initializers.constant(self.bias), (self.num_classes,))
    return product(y.astype(self.dtype), kernel.astype(self.dtype)) + bias


@jax.custom_vjp
def product(y: jax.Array, kernel: jax.Array) -> jax.Array:
  """(B, D) times (D, K) in float32; both gradients are products in the arguments' type.

  JAX's own gradients are products with a float32 factor, and are summed over devices in float32.
  """
  return jnp.matmul(y, kernel, preferred_element_type=jnp.float32)


def _forward(y, kernel):
  return product(y, kernel), (y, kernel)


def _backward(saved, grad):
  y, kernel = saved
  grad = grad.astype(y.dtype)
  return grad @ kernel.T, y.T @ grad


product.defvjp(_forward, _backward)
