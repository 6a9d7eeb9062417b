"""Dropout against the binomial distribution and NumPy in float64, and on several devices."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from vit_jax.models.layers import LEVELS, Dropout, draws, dropout

KEY = jax.random.key(3)
SHAPE = (64, 50, 128)
COUNT = np.prod(SHAPE)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.99])
def test_what_stays_is_scaled_so_that_the_mean_stays(rate):
  x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
  got = np.asarray(dropout(x, KEY, rate))
  kept = got != 0
  lowest = round(rate * LEVELS)
  np.testing.assert_allclose(got[kept], np.float64(x)[kept] * LEVELS / (LEVELS - lowest), rtol=1e-6)
  np.testing.assert_array_equal(kept, np.asarray(draws(KEY, SHAPE)) >= lowest)
  assert LEVELS / (LEVELS - lowest) == pytest.approx(1 / (1 - rate), rel=1e-3)


def test_draws_are_uniform_and_their_quarters_independent():
  numbers = np.asarray(draws(KEY, SHAPE), np.float64)
  assert numbers.min() == 0
  assert numbers.max() == LEVELS - 1
  counts = np.bincount((numbers // (LEVELS // 64)).astype(int).ravel(), minlength=64)
  chi_squared = np.sum((counts - COUNT / 64) ** 2 / (COUNT / 64))
  assert chi_squared < 63 + 5 * np.sqrt(2 * 63)
  quarters = [quarter.ravel() for quarter in np.split(numbers, 4, axis=-1)]
  pairs = list(itertools.combinations(quarters, 2))
  pairs += [(a[1:], b[:-1]) for a, b in itertools.product(quarters, repeat=2)]
  for a, b in pairs:
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))


def test_draws_are_both_words_that_the_generator_gives_for_a_position():
  numbers = np.asarray(draws(KEY, SHAPE)).reshape(64, 50, 2, 2, 32)  # word, its half
  words = numbers[..., 0, :] + numbers[..., 1, :] * LEVELS
  combined = jax.random.bits(KEY, (64, 50, 32), jnp.uint32)
  np.testing.assert_array_equal(words[:, :, 0] ^ words[:, :, 1], combined)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_the_gradient_is_the_mask_and_the_scale(dtype):
  x = jnp.ones((4, 33), dtype)
  out, back = jax.vjp(lambda x: dropout(x, KEY, 0.25), x)
  (gradient,) = back(jnp.ones_like(out))
  assert out.dtype == gradient.dtype == dtype
  np.testing.assert_array_equal(out, gradient)
  assert set(np.unique(np.float32(out))) == {0, float(jnp.asarray(4 / 3, dtype))}


@pytest.mark.parametrize("width", [1, 5, 6, 7])
def test_any_width_draws_as_many_as_it_has(width):
  some, all_of_them = draws(KEY, (3, width)), draws(KEY, (3, -(-width // 4) * 4))
  assert some.shape == (3, width)
  np.testing.assert_array_equal(some, all_of_them[:, :width])


def test_does_not_depend_on_the_devices_nor_on_jit():
  x = jnp.ones((16, 10, 32))
  mesh = Mesh(np.array(jax.devices()[:8]), "data")
  rows = NamedSharding(mesh, P("data"))
  divided = jax.jit(lambda x, key: dropout(x, key, 0.3), out_shardings=rows)
  expected = dropout(x, KEY, 0.3)
  np.testing.assert_array_equal(divided(jax.device_put(x, rows), KEY), expected)
  text = divided.lower(jax.device_put(x, rows), KEY).compile().as_text()
  assert "all-" not in text
  assert "collective" not in text


def test_off_in_evaluation_and_at_rate_0():
  x = jnp.ones((2, 4))
  assert Dropout(0.5).apply({}, x, train=False) is x
  assert Dropout(0.0).apply({}, x, train=True) is x
  rngs = {"dropout": KEY}
  zeros = [np.asarray(Dropout(0.5).apply({}, x, train=True, rngs=rngs)) for _ in range(2)]
  np.testing.assert_array_equal(*zeros)
