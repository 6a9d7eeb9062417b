"""GELU's own gradients against the formulas in float64 and against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from vit_jax.models.layers import ACTIVATIONS

POINTS = np.concatenate([np.linspace(-12, 12, 481), [0.0, 1e-6, -1e-6, 60.0, -60.0]])


def formula(x):
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def exact(x):
  return x * stats.norm.cdf(x)


FORMS = pytest.mark.parametrize(("name", "form"), [("gelu_tanh", formula), ("gelu", exact)])


def test_activations_by_their_names():
  sigmoid = lambda x: 1 / (1 + np.exp(-x))
  forms = {"gelu_tanh": formula(POINTS), "gelu": exact(POINTS)}
  forms |= {"quick_gelu": POINTS * sigmoid(1.702 * POINTS), "silu": POINTS * sigmoid(POINTS)}
  assert forms.keys() == ACTIVATIONS.keys()
  for name, expected in forms.items():
    found = ACTIVATIONS[name](np.float32(POINTS))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
  assert np.abs(forms["gelu"] - forms["gelu_tanh"]).max() > 1e-4


@FORMS
def test_gradient_against_float64_differences(name, form):
  step = 1e-6
  expected = (form(POINTS + step) - form(POINTS - step)) / (2 * step)
  got = jax.vmap(jax.grad(ACTIVATIONS[name]))(np.float32(POINTS))
  # Where tanh is next to -1, its last bit counts for 5e-6.
  np.testing.assert_allclose(got, expected, atol=1e-5)


@FORMS
def test_gradient_in_bfloat16_against_automatic_differentiation(name, form):
  x = jnp.asarray(POINTS, jnp.bfloat16)
  ours = jax.vmap(jax.grad(ACTIVATIONS[name]))(x)
  theirs = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=form is formula)))(x)
  assert ours.dtype == theirs.dtype == jnp.bfloat16
  np.testing.assert_allclose(np.float32(ours), np.float32(theirs), atol=0.02)


@FORMS
def test_the_backward_pass_keeps_its_input_alone(name, form):
  """What JAX saves, and what XLA does: it would save the tanh or erf too."""
  x = jnp.asarray(POINTS, jnp.float32)
  kept = jax.tree.leaves(jax.vjp(ACTIVATIONS[name], x)[1])
  assert [leaf.shape for leaf in kept if jnp.size(leaf) > 1] == [x.shape]
  gradient = jax.jit(jax.grad(lambda x: ACTIVATIONS[name](x @ x).sum()))
  barriers = gradient.lower(jnp.eye(2)).as_text().count("optimization_barrier")
  assert barriers == 1
