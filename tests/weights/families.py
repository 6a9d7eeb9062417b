"""One small model of each family, with parameters that are all non-zero."""

import functools

import jax
import numpy as np

from vit_jax import models

VIT = dict(depth=2, width=32, mlp_dim=64, heads=2, num_classes=5)
FAMILIES = {
  "vit": ("ViT-B/4", VIT),
  "representation": ("ViT-B/4", VIT | dict(representation_layer=True)),
  "gap": ("ViT-B/4", VIT | dict(pool="gap")),
  "map": ("ViT-B/4", VIT | dict(pool="map")),
  "none": ("ViT-B/4", VIT | dict(positions="none")),
  "2d": ("ViT-B/4", VIT | dict(positions="2d")),
  "2d_every_layer": ("ViT-B/4", VIT | dict(positions="2d", position_place="every_layer")),
  "1d_shared": ("ViT-B/4", VIT | dict(position_place="every_layer_shared")),
  "relative": ("ViT-B/4", VIT | dict(positions="relative")),
  "later": ("ViT-B/4", VIT | dict(registers=3, qk_norm=True, layer_scale=True)),
  "hybrid": ("R50x1+ViT-B/16", VIT | dict(stages=(2, 1, 1), stem_width=32)),
  "root_hybrid": ("R+ViT-Ti/16", VIT | dict(stem_width=32, patch=1)),
  "axial": ("Axial-ViT-B/4", VIT),
  "bit": ("R50x1", dict(stages=(2, 1), width=32, num_classes=5)),
  "axial_resnet": ("Axial-R50", dict(stages=(1, 1), width=32, num_classes=5)),
}
SIDE = 16


def module(family, **options):
  """The module of a family."""
  name, fields = FAMILIES[family]
  return models.create(name, **(fields | options))


@functools.cache
def _shapes(family):
  images = np.zeros((1, SIDE, SIDE, 3), np.float32)
  return jax.eval_shape(lambda: module(family).init(jax.random.key(0), images, train=False))


def params(family, seed=0):
  """Random parameters as NumPy arrays, scaled so that logits are of order 1."""
  rng = np.random.default_rng(seed)

  def draw(path, leaf):
    noise = rng.standard_normal(leaf.shape).astype(np.float32)
    return 1 + 0.2 * noise if path[-1].key == "scale" else 0.3 * noise

  return jax.tree_util.tree_map_with_path(draw, _shapes(family)["params"])


def images(side=SIDE, batch=2):
  """Images in [-1, 1]."""
  return np.random.default_rng(1).uniform(-1, 1, (batch, side, side, 3)).astype(np.float32)


def assert_same_shapes(a, b):
  """Asserts that two trees have equal structure and shapes."""
  assert jax.tree.map(np.shape, a) == jax.tree.map(lambda x: x.shape, b)


def assert_same_bits(a, b):
  """Asserts that two trees have equal structure, types and bits."""
  flat_a, tree_a = jax.tree.flatten(a)
  flat_b, tree_b = jax.tree.flatten(b)
  assert tree_a == tree_b
  for x, y in zip(flat_a, flat_b, strict=True):
    assert (x.dtype, x.shape) == (y.dtype, y.shape)
    assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
