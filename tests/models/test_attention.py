"""Attention with and without relative position embeddings against NumPy loops in float64."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from vit_jax.models.attention import Attention, attend, attend_heads_first


def draw(*shape, seed=0):
  return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(module, params, *inputs):
  return jax.jit(module.apply)({"params": params}, *inputs)


@pytest.mark.parametrize(
  ("tokens", "heads", "relative", "keys"),
  [(1, 2, False, 0), (1, 3, False, 7), (5, 4, False, 0), (5, 4, True, 0), (9, 1, True, 0)],
)
def test_values(tokens, heads, relative, keys):
  """With keys and values of another source, if `keys` says how many."""
  module = Attention(heads, jnp.float32, relative=relative)
  inputs = [draw(2, tokens, 12)]
  if keys:
    inputs.append(draw(2, keys, 12, seed=1))
  params = modules.parameters(module, *inputs)
  expected = reference.attention(jax.tree.map(np.float64, params), *map(np.float64, inputs))
  np.testing.assert_allclose(run(module, params, *inputs), expected, atol=1e-5)


def test_relative_embeddings_are_one_vector_a_head_and_offset():
  module, x = Attention(4, jnp.float32, relative=True), jnp.zeros((1, 50, 24))
  table = jax.jit(module.init)(jax.random.key(0), x)["params"]["pos_embedding_relative"]
  assert table.shape == (99, 4, 6)
  np.testing.assert_allclose(np.std(table), 0.02, rtol=0.1)


def gradients64(query, key, value, bias, grad):
  """Output and gradients of softmax(q k^T / sqrt(D_h) + bias) v, float64, by the full Jacobian."""
  bias = 0 if bias is None else bias
  query, key, value, bias, grad = map(np.float64, (query, key, value, bias, grad))
  size = query.shape[-1]
  weights = reference.softmax(np.einsum("bqhd,bkhd->bhqk", query, key) / np.sqrt(size) + bias)
  jacobian = np.einsum("bhqk,kl->bhqkl", weights, np.eye(key.shape[1]))
  jacobian -= np.einsum("bhqk,bhql->bhqkl", weights, weights)
  dlogits = np.einsum("bhqkl,bqhd,bkhd->bhql", jacobian, grad, value)
  return (
    np.einsum("bhqk,bkhd->bqhd", weights, value),
    np.einsum("bhqk,bkhd->bqhd", dlogits, key) / np.sqrt(size),
    np.einsum("bhqk,bqhd->bkhd", dlogits, query) / np.sqrt(size),
    np.einsum("bhqk,bqhd->bkhd", weights, grad),
    dlogits,
  )


def operands(dtype, queries, keys, scale):
  """Query, key, value, bias and the gradient of the output."""
  token = lambda count, seed: draw(2, count, 3, 8, seed=seed)
  arrays = (
    scale * token(queries, 1),
    scale * token(keys, 2),
    token(keys, 3),
    draw(2, 3, queries, keys, seed=4),
    token(queries, 5),
  )
  return [jnp.asarray(x, dtype) for x in arrays]


def differentiated(function, *arrays, grad):
  """Output and gradients, compiled."""

  def both(*arrays):
    y, pull = jax.vjp(function, *arrays)
    return y, *pull(grad)

  return jax.jit(both)(*arrays)


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (6, 6), (4, 9)])
@pytest.mark.parametrize("scale", [1, 30])  # 30: logits of thousands, all weight on one key
@pytest.mark.parametrize("biases", [0, 1, 2])  # 1: both examples share them
@pytest.mark.parametrize("attend", [attend, attend_heads_first])
def test_output_and_gradients_in_float32(attend, queries, keys, scale, biases):
  *arrays, bias, grad = operands(jnp.float32, queries, keys, scale)
  bias = bias[:biases] if biases else None
  *expected, of_bias = gradients64(*arrays, bias, grad)
  *actual, found = differentiated(attend, *arrays, bias, grad=grad)
  assert (found is None) == (not biases)
  if biases == 1:
    of_bias = of_bias.sum(axis=0, keepdims=True)
  if biases:
    actual, expected = [*actual, found], [*expected, of_bias]
  for got, wanted in zip(actual, expected, strict=True):
    np.testing.assert_allclose(got, wanted, atol=2e-6 * max(1, np.abs(wanted).max()) * scale)


def test_in_bfloat16_errors_are_of_the_size_of_those_of_jax():
  *arrays, grad = operands(jnp.bfloat16, 50, 50, 2)
  expected = gradients64(*arrays, grad)

  def by_jax(query, key, value, bias):
    return jax.nn.dot_product_attention(query, key, value, bias=bias, implementation="xla")

  error = lambda a, b: np.sqrt(np.mean((np.asarray(a, np.float64) - b) ** 2))
  for ours, theirs, wanted in zip(
    differentiated(attend, *arrays, grad=grad),
    differentiated(by_jax, *arrays, grad=grad),
    expected,
    strict=True,
  ):
    assert ours.dtype == jnp.bfloat16
    assert error(ours, wanted) < 2 * error(theirs, wanted)


@pytest.mark.parametrize("attend", [attend, attend_heads_first])
def test_no_logits_are_kept_and_weights_in_the_type_of_the_computation(attend):
  *arrays, bias, _ = operands(jnp.bfloat16, 6, 7, 1)
  kept = jax.tree.leaves(jax.eval_shape(lambda *a: jax.vjp(attend, *a, None)[1], *arrays))
  of_pairs = [leaf.dtype for leaf in kept if leaf.shape == bias.shape]
  assert of_pairs == [jnp.bfloat16]


@pytest.mark.parametrize("relative", [False, True])
def test_all_matmuls_but_the_logits_are_in_the_type_of_the_computation(relative):
  module, x = Attention(3, jnp.bfloat16, relative=relative), jnp.zeros((1, 5, 12), jnp.bfloat16)
  params = jax.eval_shape(lambda: module.init(jax.random.key(0), x))
  text = str(jax.make_jaxpr(module.apply)(params, x))
  types = re.findall(r"(\w+)\[[\d,]+\] = dot_general", text)
  assert sorted(types) == ["bf16"] * (5 + relative) + ["f32"]
