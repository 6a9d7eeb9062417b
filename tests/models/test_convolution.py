"""Weight standardisation and normalisation over groups against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from vit_jax.models.convolution import (
  STAGES,
  StandardizedConv,
  check_stages,
  group_norm,
  standardize_bit,
  standardize_stem,
)

BOTH = pytest.mark.parametrize("standardize", [standardize_stem, standardize_bit])
CHANNEL = (0, 1, 2)


def draw(seed, scale=1.0, shift=0.0, shape=(3, 3, 4, 5)):
  return np.float32(np.random.default_rng(seed).normal(shift, scale, shape))


def both_references(kernel):
  kernel = kernel.astype(float)
  centred = kernel - kernel.mean(axis=CHANNEL)
  variance = kernel.var(axis=CHANNEL)
  return centred / (np.sqrt(variance) + 1e-5), centred / np.sqrt(variance + 1e-10)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-5, 1e-3, 1.0, 100.0]))
def test_values(seed, scale):
  kernel = draw(seed, scale)
  stem, bit = both_references(kernel)
  np.testing.assert_allclose(standardize_stem(jnp.asarray(kernel)), stem, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(standardize_bit(jnp.asarray(kernel)), bit, rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.1])
@pytest.mark.parametrize(("mean", "scale"), [(0.0, 1.0), (0.0, 1e-2), (100.0, 0.1)])
def test_group_norm(epsilon, mean, scale):
  x = draw(3, scale, mean, shape=(2, 3, 5, 64))
  own = {"scale": draw(4, shape=(64,)), "bias": draw(5, shape=(64,))}
  actual = group_norm(epsilon, jnp.float32, "norm").apply({"params": own}, x)
  expected = reference.group_norm(own, x.astype(float), epsilon)
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-3 if mean else 1e-4)


def test_group_norm_computes_statistics_in_float32_and_answers_in_its_type():
  x = jnp.asarray(draw(3, 0.1, 3.0, shape=(1, 8, 8, 64)), jnp.bfloat16)
  own = {"scale": jnp.ones(64), "bias": jnp.zeros(64)}
  actual, exact = (
    group_norm(1e-6, dtype, "norm").apply({"params": own}, jnp.asarray(x, dtype))
    for dtype in (jnp.bfloat16, jnp.float32)
  )
  assert actual.dtype == jnp.bfloat16
  np.testing.assert_array_equal(actual, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize("depth", STAGES)
def test_the_units_have_as_many_layers_as_the_name_says(depth):
  """Three convolutions a unit, the root, and the head."""
  assert 3 * sum(STAGES[depth]) + 2 == int(depth)


@pytest.mark.parametrize("stages", [(1,) * 7, (257,), (1, 0), (2, -1), (3, 1.0), (True,), ("1",)])
def test_stages_outside_their_bounds_are_refused(stages):
  for allowed in ((), (1,) * 6, (256,), (128, 128)):
    check_stages(allowed)
  with pytest.raises(ValueError, match="at most 6 stages and 256 in all"):
    check_stages(stages)
