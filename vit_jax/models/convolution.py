"""Standardised convolutions and stages, shared by ResNets and the ResNets of hybrids.

The published weights of the two (Section 4.1) compute the standard deviation in two ways, which
differ by up to 5e-4. So there are two functions.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.process.text import shown

# Residual units in each stage, by the depth in the model's name.
STAGES = {
  "26": (2, 2, 2, 2),
  "50": (3, 4, 6, 3),
  "101": (3, 4, 23, 3),
  "152": (3, 8, 36, 3),
  "200": (3, 24, 36, 3),
}
MAX_STAGES = 6  # the paper's deepest ResNet has 4 stages, 66 units
MAX_UNITS = 256
GROUPS = 32  # of every GroupNorm


def standardize_stem(kernel: jax.Array) -> jax.Array:
  """(w - mean) / (std + 1e-5) for each output channel of (h, w, in, out); used by hybrids."""
  centred = kernel - kernel.mean(axis=(0, 1, 2))
  return centred / (jnp.sqrt(jnp.square(centred).mean(axis=(0, 1, 2))) + 1e-5)


def as_it_is(kernel: jax.Array) -> jax.Array:
  """The kernel, not standardised."""
  return kernel


def standardize_bit(kernel: jax.Array, epsilon: float = 1e-10) -> jax.Array:
  """(w - mean) / sqrt(var + epsilon) for each output channel of (h, w, in, out); used by BiT."""
  centred = kernel - kernel.mean(axis=(0, 1, 2))
  return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=(0, 1, 2)) + epsilon)


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
  """GroupNorm; its statistics are float32 and stay exact if means are large."""
  return nn.GroupNorm(
    num_groups=GROUPS,
    epsilon=epsilon,
    dtype=dtype,
    use_fast_variance=False,
    scale_init=scale_init,
    name=name,
  )


def map_size(pixels: int, stages: tuple[int, ...]) -> int:
  """Positions along a side of the map after the root and `stages`.

  The root divides by 4, each stage after the first by 2, and each division by 2 rounds up.
  """
  for _ in range(2 + max(len(stages) - 1, 0)):
    pixels = -(-pixels // 2)
  return pixels


def stride_of(stages: tuple[int, ...]) -> int:
  """Pixels from one position of the map after the root and `stages` to the next."""
  return 4 * 2 ** max(len(stages) - 1, 0)


def check_root(channels: int, key: str, name: str):
  """Checks the channels of a root, the setting `key` of the model `name`.

  Raises:
    ValueError: they cannot be normalised.
  """
  if channels % GROUPS:
    raise ValueError(
      f"{key}={channels} of {name} is not divisible by the {GROUPS} groups of GroupNorm; make it a "
      f"multiple of {GROUPS}."
    )


def check_stages(stages: tuple):
  """Checks that stages are numbers of units, and not too many.

  Raises:
    ValueError: they are not.
  """
  units = [number for number in stages if type(number) is int and number > 0]
  if len(units) != len(stages) or len(units) > MAX_STAGES or sum(units) > MAX_UNITS:
    raise ValueError(
      f"stages={shown(stages)} must hold numbers of residual units, one for each of at most "
      f"{MAX_STAGES} stages and {MAX_UNITS} in all, such as (3, 4, 6, 3)."
    )
