"""Parameters, outputs and gradients of models, with little to compile."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.golden import weights as golden
from vit_jax.storage.tree import name_of, nest


def parameters(module, *inputs, **options):
  """Parameters of the module's own shapes in which nothing is 0, as initial values often are."""
  init = lambda: module.init(jax.random.key(0), *inputs, **options)["params"]
  named = jax.tree_util.tree_leaves_with_path(jax.eval_shape(init))
  return nest(golden.make({name_of(path): leaf.shape for path, leaf in named}))


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, images):
  """Logits and features."""
  return model.apply({"params": params}, images, train=False)


@functools.partial(jax.jit, static_argnums=0)
def logits_and_grads(model, params, images):
  """Logits, and the gradient of a sum in which no logit counts like another."""

  def loss(params):
    logits, _ = model.apply({"params": params}, images, train=False)
    return jnp.sum(jnp.sin(logits + jnp.arange(logits.size).reshape(logits.shape))), logits

  grads, logits = jax.grad(loss, has_aux=True)(params)
  return logits, grads


def count(params):
  """Number of parameters in a tree of arrays or shapes."""
  return sum(x.size for x in jax.tree.leaves(params))


def kept(model, params, images):
  """Numbers that the backward pass finds kept from the forward pass."""
  forward = lambda params: model.apply({"params": params}, images, train=False)[0]
  return count(jax.eval_shape(lambda params: jax.vjp(forward, params)[1], params))


def assert_close(actual, expected):
  """Two trees of gradients are equal but for the rounding of float32, and no leaf is 0.

  A leaf may be nothing but rounding, as that of the key's bias, which no attention depends on.
  """
  assert jax.tree.structure(actual) == jax.tree.structure(expected)
  rounding = 1e-6 * max(np.abs(leaf).max() for leaf in jax.tree.leaves(expected))
  for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
    largest = np.abs(b).max()
    assert largest > 0
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * largest + rounding)
