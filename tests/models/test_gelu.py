"""GELU's own gradient against the formula in float64 and against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from vit_jax.models.layers import ACTIVATIONS, gelu

POINTS = np.concatenate([np.linspace(-12, 12, 481), [0.0, 1e-6, -1e-6, 60.0, -60.0]])


def formula(x):
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_activations_by_their_names():
  sigmoid = lambda x: 1 / (1 + np.exp(-x))
  forms = {"gelu_tanh": formula(POINTS), "gelu": POINTS * stats.norm.cdf(POINTS)}
  forms |= {"quick_gelu": POINTS * sigmoid(1.702 * POINTS), "silu": POINTS * sigmoid(POINTS)}
  assert forms.keys() == ACTIVATIONS.keys()
  for name, expected in forms.items():
    found = ACTIVATIONS[name](np.float32(POINTS))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  assert np.abs(forms["gelu"] - forms["gelu_tanh"]).max() > 1e-4


def test_gradient_against_float64_differences():
  step = 1e-6
  expected = (formula(POINTS + step) - formula(POINTS - step)) / (2 * step)
  got = jax.vmap(jax.grad(gelu))(np.float32(POINTS))
  # Where tanh is next to -1, its last bit counts for 5e-6.
  np.testing.assert_allclose(got, expected, atol=1e-5)


def test_gradient_in_bfloat16_against_automatic_differentiation():
  x = jnp.asarray(POINTS, jnp.bfloat16)
  ours = jax.vmap(jax.grad(gelu))(x)
  theirs = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=True)))(x)
  assert ours.dtype == theirs.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(ours), np.float32(theirs), atol=0.02)


def test_the_backward_pass_keeps_its_input_alone():
  x = jnp.asarray(POINTS, jnp.float32)
  kept = jax.tree.leaves(jax.vjp(gelu, x)[1])
  assert [leaf.shape for leaf in kept if jnp.size(leaf) > 1] == [x.shape]
