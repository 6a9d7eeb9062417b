"""The two forms of GELU. The gradient of the paper's form is written by hand.

This gradient needs only the input of GELU, the largest array of a block. JAX's own gradient keeps
several arrays of this size.
"""

import functools
import math

import jax
import jax.numpy as jnp

SCALE, CUBIC = math.sqrt(2 / math.pi), 0.044715


@jax.custom_vjp
def gelu(x: jax.Array) -> jax.Array:
  """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, of any shape and type."""
  return jax.nn.gelu(x, approximate=True)


def _forward(x):
  return gelu(x), x


def _backward(x, grad):
  wide = x.astype(jnp.float32)
  tanh = jnp.tanh(SCALE * (wide + CUBIC * wide**3))
  inner = SCALE * (1 + 3 * CUBIC * wide**2)
  slope = 0.5 * (1 + tanh) + 0.5 * wide * (1 - tanh**2) * inner
  return ((grad * slope).astype(x.dtype),)


gelu.defvjp(_forward, _backward)

# By timm's names: the tanh form, used by the published weights, and the exact form, x times the
# normal distribution function, used by many other models.
FORMS = {"gelu_tanh": gelu, "gelu": functools.partial(jax.nn.gelu, approximate=False)}
