"""Attention with and without relative position embeddings against NumPy loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import modules, reference
from vit_jax.models.attention import Attention, relative_logits


def draw(*shape, seed=0):
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(module, params, *inputs):
  return jax.jit(module.apply)({"params": params}, *inputs)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(("tokens", "heads"), [(1, 2), (5, 4), (9, 1)])
def test_values(tokens, heads, relative):
  module = Attention(heads, jnp.float32, relative=relative)
  x = draw(2, tokens, 12)
  params = modules.parameters(module, x)
  expected = reference.attention(jax.tree.map(np.float64, params), x.astype(float))
  np.testing.assert_allclose(run(module, params, x), expected, atol=1e-5)


def test_keys_and_values_of_another_source():
  module = Attention(3, jnp.float32)
  x, source = draw(2, 1, 12), draw(2, 7, 12, seed=1)
  params = modules.parameters(module, x, source)
  wide = jax.tree.map(np.float64, params)
  expected = reference.attention(wide, x.astype(float), source.astype(float))
  np.testing.assert_allclose(run(module, params, x, source), expected, atol=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**6))
def test_relative_logits_depend_on_query_and_offset(tokens, heads, size, seed):
  query = draw(2, tokens, heads, size, seed=seed)
  table = draw(2 * tokens - 1, heads, size, seed=seed + 1)
  actual = relative_logits(jnp.asarray(query), jnp.asarray(table))
  assert actual.shape == (2, heads, tokens, tokens)
  for q in range(tokens):
    for k in range(tokens):
      vector = table[tokens - 1 + k - q].astype(float)
      expected = (query[:, q] * vector).sum(axis=-1) / np.sqrt(size)
      np.testing.assert_allclose(actual[:, :, q, k], expected, atol=1e-5)


def test_relative_embeddings_are_one_vector_a_head_and_offset():
  module, x = Attention(4, jnp.float32, relative=True), jnp.zeros((1, 50, 24))
  table = jax.jit(module.init)(jax.random.key(0), x)["params"]["pos_embedding_relative"]
  assert table.shape == (99, 4, 6)
  np.testing.assert_allclose(np.std(table), 0.02, rtol=0.1)


@pytest.mark.parametrize("relative", [False, True])
def test_order_matters_with_relative_embeddings_alone(relative):
  module = Attention(2, jnp.float32, relative=relative)
  x = draw(2, 6, 8)
  params = modules.parameters(module, x)
  order = np.array([3, 0, 5, 1, 2, 4])
  expected = run(module, params, x)[:, order]
  error = np.abs(run(module, params, x[:, order]) - expected).max()
  assert error > 1e-2 if relative else error < 1e-5
