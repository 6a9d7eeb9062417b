"""The features of the last blocks, against blocks that are applied by hand."""

import functools

import jax
import numpy as np
import pytest

from tests import modules
from tests.weights import families
from vit_jax import models
from vit_jax.extras.probes import extraction
from vit_jax.inference import layers
from vit_jax.inference.model import of_weights
from vit_jax.models.layers import LayerNorm
from vit_jax.models.recognition import settings_of
from vit_jax.weights import Weights
from vit_jax.weights.card import Card

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)


def model(family):
  return of_weights(Weights(families.params(family), Card(image_size=16))).at_size()


def made(**fields):
  """A small model with other fields."""
  module = models.create("ViT-B/4", **families.VIT | fields)
  params = modules.parameters(module, families.images(), train=False)
  return of_weights(Weights(params, Card(image_size=16, model=settings_of(module)))).at_size()


def outputs_of_blocks(loaded):
  """The output of each block, through the final LayerNorm."""
  module, params = loaded.module, loaded.params
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
  images = list(PIXELS)
  loaded = model(family)
  expected = outputs_of_blocks(loaded)
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


@pytest.mark.parametrize(
  ("fields", "token"),
  [
    (dict(representation_layer=True, patch=(4, 8)), True),
    (dict(pool="map"), False),
    (dict(pool="gap_beside_token"), True),
    # Both ends of the blocks differ.
    (dict(pool="distilled", depth=3, heads=4, kv_heads=2, kv_heads_from=1), True),
  ],
)
def test_what_stands_for_the_image_is_a_learned_token_in_each_block(fields, token):
  """Whatever is behind the blocks, and whatever training with masks would need."""
  loaded = made(**fields)
  count, before = loaded.module.depth, loaded.module.tokens_before()
  assert layers.has_class_token(loaded.module) == token
  assert extraction.layer_count(loaded.module) == count
  tokens = outputs_of_blocks(loaded)
  expected = tokens[:, :, 0] if token else tokens.mean(axis=2)
  seen = layers.seen(loaded.module, loaded.params, PIXELS, count)
  np.testing.assert_allclose(seen["image"], expected, atol=1e-5)
  np.testing.assert_allclose(seen["patches"], tokens[:, :, before:], atol=1e-5)
  np.testing.assert_allclose(seen["mean"], tokens[:, -1, before:].mean(axis=1), atol=1e-5)


@pytest.mark.parametrize("pool", ["gap", "gap_beside_token"])
def test_a_norm_behind_the_pooling_is_applied_to_what_stands_for_the_image(pool):
  loaded = made(pool=pool, final_norm="pooled")
  seen = layers.seen(loaded.module, loaded.params, PIXELS, 2)
  for found in (seen["image"][:, -1], seen["mean"]):
    np.testing.assert_allclose(found, seen["pre_logits"], atol=1e-5)


def test_a_neck_leaves_one_output():
  module = models.create("ViT-B/4", **families.VIT, pool="gap", neck="norm", final_norm="none")
  assert extraction.layer_count(module) == 1
  with pytest.raises(ValueError, match="its patches are those of its neck, so only its last"):
    layers.check(module, 2)


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
