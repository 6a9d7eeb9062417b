"""The features of the last blocks, against blocks that are applied by hand."""

import functools

import jax
import numpy as np
import pytest

from tests.weights import families
from vit_jax.inference import layers
from vit_jax.inference.model import of_weights
from vit_jax.models.layers import LayerNorm
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)


def model(family):
  return of_weights(Weights(families.params(family), Card(image_size=16))).at_size()


def outputs_of_blocks(family):
  """The output of each block, through the final LayerNorm."""
  module, params = families.module(family), families.params(family)
  wanted = lambda inner, name: (inner.name or "").startswith("encoderblock_")
  run = functools.partial(
    module.apply, train=False, capture_intermediates=wanted, mutable=["intermediates"]
  )
  _, kept = jax.jit(run)({"params": params}, PIXELS / np.float32(127.5) - 1)
  norm = {"params": params["Transformer"]["encoder_norm"]}
  blocks = kept["intermediates"]["Transformer"]
  outputs = [blocks[f"encoderblock_{i}"]["__call__"][0][0] for i in range(module.depth)]
  return np.stack([LayerNorm(np.float32).apply(norm, x) for x in outputs], axis=1)


@pytest.mark.parametrize(("family", "before"), [("later", 4), ("gap", 0)])
def test_the_last_blocks(family, before):
  expected = outputs_of_blocks(family)
  images = list(PIXELS)
  loaded = model(family)
  patches = expected[:, :, before:]
  whole = patches.mean(axis=2)
  if before:
    whole = expected[:, :, 0]
  np.testing.assert_allclose(loaded.features(images, layers=2), whole, atol=1e-5)
  np.testing.assert_allclose(loaded.features(images, layers=1), whole[:, 1:], atol=1e-5)
  np.testing.assert_allclose(loaded.features(images, layers=2, patches=True), patches, atol=1e-5)
  np.testing.assert_allclose(loaded.features(images, patches=True), patches[:, 1], atol=1e-5)
  np.testing.assert_allclose(loaded.features(images), whole[:, 1], atol=1e-5)
  assert loaded.features([], layers=2, patches=True).shape == (0, 2, 16, 32)


def test_all_outputs_cost_hardly_more_than_the_last_one():
  module = families.module("vit", depth=4)
  params = jax.eval_shape(lambda: module.init(jax.random.key(0), families.images(), train=False))
  pixels = jax.ShapeDtypeStruct(PIXELS.shape, np.uint8)
  flops = []
  for count in (1, 4):
    compiled = layers.seen.lower(module, params["params"], pixels, count).compile()
    flops.append(compiled.cost_analysis()["flops"])
  assert flops[1] < 1.1 * flops[0]


def test_a_resnet_has_one_output():
  loaded = model("bit")
  images = list(PIXELS)
  patches = loaded.features(images, patches=True)
  np.testing.assert_allclose(patches.mean(axis=1), loaded.features(images), atol=1e-5)
  with pytest.raises(ValueError, match="has no blocks of one width"):
    loaded.features(images, layers=2)
  with pytest.raises(ValueError, match="the model has 2 blocks, so there are no last 3"):
    model("vit").features(images, layers=3)
