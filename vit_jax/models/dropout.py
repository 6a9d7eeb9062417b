"""Dropout whose draws cost half: one random word of 32 bits decides over two elements.

On TPUs the generator (threefry: some hundred integer operations a word, none of them on the matrix
unit) is what dropout costs. 16 bits are enough for a rate.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

LEVELS = 2**16  # a draw is a whole number below


class Dropout(nn.Module):
  """Sets elements to 0 at random and scales the others, so that the mean stays.

  Attributes:
    rate: of zeros, 0 <= rate < 1.
  """

  rate: float

  @nn.compact
  def __call__(self, x: jax.Array, *, train: bool) -> jax.Array:
    """x as it is where not `train` or the rate is 0; else draws from the stream "dropout"."""
    if not train or self.rate == 0:
      return x
    return dropout(x, self.make_rng("dropout"), self.rate)


def dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
  """(..., D) -> (..., D): 0 with probability `rate`, to the nearest 2^-16, else x / (1 - rate).

  The draws depend on the key and the shape alone, not on how x is divided among devices.
  """
  lowest = round(rate * LEVELS)
  scale = LEVELS / (LEVELS - lowest)
  # In float32, because 1 / 0.9 is off by 0.2% in bfloat16.
  scaled = (x.astype(jnp.float32) * scale).astype(x.dtype)
  return jnp.where(draws(key, x.shape) >= lowest, scaled, 0)


def draws(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
  """Uniform numbers from 0 up to 2^16, the end not included; of the shape (..., D), uint32.

  The lower halves of the words come first along the last axis, then the upper ones.
  """
  *rows, width = shape
  words = jax.random.bits(key, (*rows, (width + 1) // 2), jnp.uint32)
  return jnp.concatenate([words % LEVELS, words // LEVELS], axis=-1)[..., :width]
