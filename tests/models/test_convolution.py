"""Weight standardisation against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.models.convolution import StandardizedConv, standardize_bit, standardize_stem

BOTH = pytest.mark.parametrize("standardize", [standardize_stem, standardize_bit])
CHANNEL = (0, 1, 2)


def draw(seed, scale=1.0, shift=0.0, shape=(3, 3, 4, 5)):
  return np.float32(np.random.default_rng(seed).normal(shift, scale, shape))


def both_references(kernel):
  kernel = kernel.astype(float)
  centred = kernel - kernel.mean(axis=CHANNEL)
  variance = kernel.var(axis=CHANNEL)
  return centred / (np.sqrt(variance) + 1e-5), centred / np.sqrt(variance + 1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-5, 1e-3, 1.0, 100.0]))
def test_values(seed, scale):
  kernel = draw(seed, scale)
  stem, bit = both_references(kernel)
  np.testing.assert_allclose(standardize_stem(jnp.asarray(kernel)), stem, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(standardize_bit(jnp.asarray(kernel)), bit, rtol=1e-4, atol=1e-5)


@BOTH
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.3, 30), st.floats(-10, 10))
def test_every_output_channel_gets_mean_0_and_variance_1(standardize, seed, scale, shift):
  out = np.asarray(standardize(jnp.asarray(draw(seed, scale, shift))), float)
  np.testing.assert_allclose(out.mean(axis=CHANNEL), 0, atol=1e-4)
  np.testing.assert_allclose(out.var(axis=CHANNEL), 1, atol=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1e-5, 1e-4, 0.02])
def test_the_two_differ_by_where_epsilon_stands(scale):
  kernel = draw(0, scale)
  deviation = kernel.astype(float).std(axis=CHANNEL)
  ratio = np.sqrt(deviation**2 + 1e-10) / (deviation + 1e-5)
  stem, bit = standardize_stem(jnp.asarray(kernel)), standardize_bit(jnp.asarray(kernel))
  np.testing.assert_allclose(stem, bit * ratio, rtol=1e-5, atol=1e-6)
  assert (ratio < 1).all()


@BOTH
def test_a_channel_of_equal_weights_becomes_zero(standardize):
  kernel = jnp.asarray(draw(0)).at[..., 2].set(0.25)
  out = standardize(kernel)
  assert np.isfinite(out).all()
  assert not out[..., 2].any()


@BOTH
def test_a_convolution_by_loops(standardize):
  module = StandardizedConv(5, 3, 2, [(1, 1), (1, 1)], standardize, jnp.float32)
  x, kernel = draw(1, shape=(2, 6, 7, 4)), draw(2)
  actual = module.apply({"params": {"kernel": kernel}}, x)
  weights = dict(zip((standardize_stem, standardize_bit), both_references(kernel), strict=True))
  padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
  expected = np.zeros((2, 3, 4, 5))
  for i in range(3):
    for j in range(4):
      window = padded[:, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
      expected[:, i, j] = np.einsum("bhwc,hwco->bo", window, weights[standardize])
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-4)
