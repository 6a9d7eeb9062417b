"""The head of DINO: an MLP, and the cosines of its output with prototypes.

Source: Caron et al. (2021), Section 3.2 (network architecture) and Appendix C.
"""

import jax
import jax.numpy as jnp

from vit_jax.models import layers

LAYERS = ("hidden_0", "hidden_1", "bottleneck")
STD = 0.02  # of the initial kernels
LEAST = 1e-12  # norm by which a vector is divided


def init(key: jax.Array, *, inputs: int, hidden: int, bottleneck: int, outputs: int) -> dict:
  """Fresh parameters, float32; traceable.

  The size of the prototypes does not count for the outputs, but an optimizer turns small ones
  faster; they begin as in the authors' code, where PyTorch draws them.
  """
  sizes = inputs, hidden, hidden, bottleneck
  keys = jax.random.split(key, len(LAYERS) + 1)
  params = {}
  for name, layer_key, rows, columns in zip(LAYERS, keys, sizes, sizes[1:], strict=False):
    kernel = STD * jax.random.truncated_normal(layer_key, -2.0, 2.0, (rows, columns))
    params[name] = {"kernel": kernel, "bias": jnp.zeros(columns)}
  bound = bottleneck**-0.5
  prototypes = jax.random.uniform(keys[-1], (bottleneck, outputs), minval=-bound, maxval=bound)
  return params | {"prototypes": {"kernel": prototypes}}


def outputs(params: dict, x: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """The cosine of each vector's image with each prototype: (B, D) -> (B, K) float32.

  Args:
    params: as from `init`.
    x: vectors.
    dtype: type of the matmuls, which sum in float32.
  """
  for name in LAYERS:
    x = layers.matmul(x.astype(dtype), params[name]["kernel"].astype(dtype)) + params[name]["bias"]
    if name != LAYERS[-1]:
      x = layers.ACTIVATIONS["gelu"](x)
  prototypes = unit(params["prototypes"]["kernel"], axis=0)
  return layers.matmul(unit(x).astype(dtype), prototypes.astype(dtype))


def unit(x: jax.Array, axis: int = -1) -> jax.Array:
  """x over its norm along the axis; float32."""
  x = x.astype(jnp.float32)
  squares = jnp.sum(x**2, axis=axis, keepdims=True)
  return x * jax.lax.rsqrt(jnp.maximum(squares, LEAST**2))


def macs(*, inputs: int, hidden: int, bottleneck: int, outputs: int) -> int:
  """Multiply-adds of a vector."""
  return inputs * hidden + hidden**2 + hidden * bottleneck + bottleneck * outputs
