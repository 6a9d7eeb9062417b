"""The stages of a model, called one by one, equal the whole."""

import functools

import jax
import numpy as np
import pytest

from tests import modules
from vit_jax import models

ENCODER = dict(depth=1, width=16, mlp_dim=32, heads=2, num_classes=5, dropout=0.3)
MODELS = {
  "stacked": dict(name="ViT-B/8", scan=True, position_place="every_layer_shared"),
  "hybrid": dict(name="R+ViT-Ti/16", patch=4, stem_width=32, representation_layer=True),
}
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 32, 16, 3)).astype(np.float32)


def in_turn(model, images, *, train):
  """All stages of a bound module."""
  grid = model.grid(*images.shape[1:3])
  x = model.add_positions(model.embed(images), grid, train=train)
  x = model.encode(x, grid, train=train)
  y = model.represent(x)
  return model.classify(y), {"patches": model.patches(x), "pre_logits": y}


@pytest.mark.parametrize("kind", MODELS)
def test_in_one_call_they_are_the_whole_with_its_dropout(kind):
  model = models.create(**ENCODER | MODELS[kind])
  variables = {"params": modules.parameters(model, IMAGES, train=False)}

  @functools.partial(jax.jit, static_argnums=0)
  def run(method):
    rngs = {"dropout": jax.random.key(3)}
    return model.apply(variables, IMAGES, train=True, method=method, rngs=rngs)

  for a, b in zip(jax.tree.leaves(run(in_turn)), jax.tree.leaves(run(None)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
