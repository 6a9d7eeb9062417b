"""The stages of a model, called one by one, equal the whole, and can be changed between."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from vit_jax import models

ENCODER = dict(depth=1, width=16, mlp_dim=32, heads=2, num_classes=5, dropout=0.3)
MODELS = {
  "ViT": dict(name="ViT-B/8", representation_layer=True),
  "attention pooling": dict(name="ViT-B/8", pool="map", positions="relative"),
  "stacked": dict(name="ViT-B/8", scan=True, position_place="every_layer_shared"),
  "axial": dict(name="Axial-ViT-B/8"),
  "hybrid": dict(name="R+ViT-Ti/16", patch=4, stem_width=32),
}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 32, 16, 3)).astype(np.float32)


def start(kind):
  """The model, and its variables as initialised for the whole model."""
  model = models.create(**ENCODER | MODELS[kind])
  return model, {"params": modules.parameters(model, IMAGES, train=False)}


def in_turn(model, images, *, train, between=lambda x: x):
  """All stages of a bound module, with `between` after the patch embedding."""
  grid = model.grid(*images.shape[1:3])
  x = model.add_positions(between(model.embed(images)), grid, train=train)
  x = model.encode(x, grid, train=train)
  y = model.represent(x)
  return model.classify(y), {"patches": model.patches(x), "pre_logits": y}


@pytest.mark.parametrize("kind", MODELS)
def test_in_one_call_they_are_the_whole_with_its_dropout(kind):
  model, variables = start(kind)

  @functools.partial(jax.jit, static_argnums=0)
  def run(method):
    rngs = {"dropout": jax.random.key(3)}
    return model.apply(variables, IMAGES, train=True, method=method, rngs=rngs)

  for a, b in zip(jax.tree.leaves(run(in_turn)), jax.tree.leaves(run(None)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_each_can_be_called_by_its_name():
  model, variables = start("ViT")
  call = functools.partial(model.apply, variables)
  grid = model.grid(32, 16)
  patches = call(IMAGES, method="embed")
  tokens = call(patches, grid, train=False, method="add_positions")
  encoded = call(tokens, grid, train=False, method="encode")
  y = call(encoded, method="represent")
  assert (grid, patches.shape, tokens.shape, y.shape) == ((4, 2), (2, 8, 16), (2, 9, 16), (2, 16))
  logits, features = modules.run(model, variables["params"], IMAGES)
  np.testing.assert_allclose(call(y, method="classify"), logits, rtol=1e-6, atol=3e-6)
  np.testing.assert_allclose(model.patches(encoded), features["patches"], rtol=1e-6, atol=3e-6)


def test_a_patch_that_is_hidden_after_its_embedding_is_seen_by_nobody():
  model, variables = start("ViT")
  hide = lambda x: x.at[:, 2].set(0.5)

  @jax.jit
  @jax.grad
  def slopes(images):
    logits, _ = model.apply(variables, images, train=False, between=hide, method=in_turn)
    return jnp.sum(jnp.sin(logits))

  # Patch 2 of a grid of 4 x 2 is the first of the second row.
  of_patches = np.abs(slopes(IMAGES)).reshape(2, 4, 8, 2, 8, 3).max(axis=(2, 4, 5)).reshape(2, 8)
  assert (of_patches[:, 2] == 0).all()
  assert (np.delete(of_patches, 2, axis=1) > 0).all()
