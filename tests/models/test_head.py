"""The classifier against NumPy in float64."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.models.layers import Head


def parameters():
  rng = np.random.default_rng(0)
  return dict(
    kernel=rng.normal(size=(64, 10)).astype(np.float32),
    bias=rng.normal(size=10).astype(np.float32),
  )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_logits_are_matmuls_in_the_type_of_the_computation_added_up_in_float32(dtype):
  params = parameters()
  y = jnp.asarray(np.random.default_rng(1).normal(size=(5, 64)), jnp.float32)
  logits = Head(10, 0.0, dtype).apply({"params": params}, y)
  assert logits.dtype == jnp.float32
  kernel = np.asarray(jnp.asarray(params["kernel"], dtype), np.float64)
  expected = np.asarray(y.astype(dtype), np.float64) @ kernel + params["bias"]
  np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-5)  # 4e-3 if they were rounded


def test_it_begins_at_zero_or_with_a_normal_distribution():
  y, key = jnp.ones((2, 512)), jax.random.key(0)
  for std in (0.0, 0.02):
    logits, variables = Head(100, -3.0, jnp.float32, std).init_with_output(key, y)
    kernel, bias = (variables["params"][name] for name in ("kernel", "bias"))
    assert kernel.std() == pytest.approx(std, rel=0.02)
    assert abs(kernel).max() >= 4 * std  # of 51,200 numbers
    assert (bias == -3).all()
    assert std or (logits == -3).all()


def test_gradients_are_those_of_a_linear_map():
  params, rng = parameters(), np.random.default_rng(1)
  y, weight = rng.normal(size=(5, 64)), rng.normal(size=(5, 10))
  head = Head(10, 0.0, jnp.float32)
  value = lambda params, y: (head.apply({"params": params}, y) * weight).sum()
  of_params, of_y = jax.grad(value, (0, 1))(params, jnp.asarray(y, jnp.float32))
  np.testing.assert_allclose(of_params["kernel"], y.T @ weight, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(of_params["bias"], weight.sum(0), rtol=1e-5)
  np.testing.assert_allclose(of_y, weight @ params["kernel"].T, rtol=1e-4, atol=1e-5)


def test_gradients_are_matmuls_in_bfloat16_where_the_computation_is():
  """No float32 array as large as the kernel is computed, so devices exchange half the bytes."""
  params, y = parameters(), jnp.ones((5, 64), jnp.bfloat16)
  head = Head(10, 0.0, jnp.bfloat16)
  text = str(jax.make_jaxpr(jax.grad(lambda p: head.apply({"params": p}, y).sum()))(params))
  matmuls = re.findall(r"(\w+)\[([\d,]+)\] = dot_general", text)
  assert matmuls == [("f32", "5,10"), ("bf16", "5,64"), ("bf16", "64,10")]
