"""LayerNorm and its gradient against NumPy and against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.models import layers as norm


def draw(seed, shape=(3, 5, 8), shift=0.0):
  rng = np.random.default_rng(seed)
  return rng.normal(shift, 2, shape), rng.normal(1, 1, shape[-1]), rng.normal(0, 1, shape[-1])


def reference(x, scale, bias, xp=np):
  mean = x.mean(-1, keepdims=True)
  variance = ((x - mean) ** 2).mean(-1, keepdims=True)
  return (x - mean) / xp.sqrt(variance + 1e-6) * scale + bias


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 10.0, 1000.0]))
def test_values(seed, shift):
  x, scale, bias = draw(seed, shift=shift)
  actual = norm.normalize(jnp.float32(x), jnp.float32(scale), jnp.float32(bias), norm.EPSILON)
  tolerance = 2e-5 * max(1, shift)
  np.testing.assert_allclose(
    actual, reference(np.float32(x).astype(float), scale, bias), atol=tolerance
  )


@jax.jit
def gradients(weigh, *arguments):
  """Those that are written by hand, and those that JAX derives from the formula."""
  written = lambda *a: jnp.sum(weigh * norm.normalize(*a, norm.EPSILON))
  derived = lambda *a: jnp.sum(weigh * reference(*a, jnp))
  return [jax.grad(loss, argnums=(0, 1, 2))(*arguments) for loss in (written, derived)]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([(8,), (4, 8), (2, 3, 8), (2, 2, 2, 8)]))
def test_gradients(seed, shape):
  arguments = [np.float32(a) for a in draw(seed, shape)]
  weigh = np.float32(np.random.default_rng(seed + 1).normal(size=shape))
  for actual, expected in zip(*gradients(weigh, *arguments), strict=True):
    assert actual.dtype == jnp.float32
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_kept_statistics_change_no_number():
  x, scale, bias = (jnp.float32(a) for a in draw(3))
  gradients = jax.jit(
    jax.grad(lambda x, s, b, keep: jnp.sum(norm.normalize(x, s, b, 1e-6, keep) ** 2), (0, 1, 2)),
    static_argnums=3,
  )
  for kept, computed in zip(
    *(gradients(x, scale, bias, keep) for keep in (True, False)), strict=True
  ):
    np.testing.assert_allclose(kept, computed, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_types(dtype):
  module = norm.LayerNorm(dtype)
  x = jnp.asarray(draw(0)[0], dtype)
  params = module.init(jax.random.key(0), x)
  loss = lambda p, x: jnp.sum(module.apply(p, x).astype(jnp.float32) ** 2)
  of_params, of_x = jax.grad(loss, argnums=(0, 1))(params, x)
  assert module.apply(params, x).dtype == dtype
  assert of_x.dtype == dtype
  assert {g.dtype for g in jax.tree.leaves(of_params)} == {jnp.dtype("float32")}
