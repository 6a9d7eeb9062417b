"""Attention Rollout: golden values, NumPy in float64, and products that are known."""

import functools
import operator

import numpy as np
import pytest

from tests.extras.inspection.miniatures import IMAGES, model
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.extras import inspection
from vit_jax.extras.inspection import attention
from vit_jax.extras.inspection.maps import mixed, rolled
from vit_jax.storage.tree import nest


@functools.cache
def of(family):
  module, params = model(family)
  layers = list(inspection.attention_weights(module, params, IMAGES))
  return inspection.rollout(module, params, IMAGES), layers


def product(layers):
  """M_L ... M_1 in float64: (B, N, N)."""
  found = np.eye(layers[0].shape[-1])
  for layer in layers:
    found = (0.5 * np.eye(len(found[-1])) + 0.5 * layer.astype(np.float64).mean(axis=1)) @ found
  return found


def drawn(shape=(2, 3, 5, 5)):
  weights = np.random.default_rng(0).random(shape)
  return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


def test_golden():
  record, wanted = golden.golden("vit"), golden.golden("inspection")["rollout"]
  params = nest(golden.make(record["shapes"]))
  maps, logits = inspection.rollout(models.module_of(params), params, golden.images(32))
  np.testing.assert_allclose(maps, wanted, atol=1e-6, rtol=0)
  np.testing.assert_allclose(logits, record["logits"], atol=1e-5)


def test_the_mean_over_rows_of_a_model_that_pools_by_the_mean():
  (maps, _), layers = of("gap")
  wanted = product(layers).mean(axis=1).reshape(2, 4, 4)
  np.testing.assert_allclose(maps, wanted, atol=1e-6)
  np.testing.assert_allclose(maps.sum(axis=(1, 2)), 1, atol=1e-5)


@pytest.mark.parametrize("registers", [0, 2])
def test_the_weights_of_the_pooling_of_a_model_that_pools_by_attention(registers):
  module, params = model("map", registers=registers)
  layers = list(inspection.attention_weights(module, params, IMAGES))
  maps, _ = inspection.rollout(module, params, IMAGES)
  pooling = attention.look(
    module, attention.on_device(params), IMAGES, operator.attrgetter("pooling")
  )
  probe = np.asarray(pooling).mean(axis=1)
  expected = probe @ product(layers)[:, registers:, registers:]
  np.testing.assert_allclose(maps.reshape(2, 1, 16), expected, atol=1e-6)


def test_one_layer_is_half_identity_and_half_attention():
  weights = drawn()
  wanted = 0.5 * np.eye(5) + 0.5 * weights.mean(axis=1)
  np.testing.assert_allclose(mixed(weights), wanted, atol=1e-6)
  row = np.eye(5, dtype=np.float32)[:2]
  found = rolled(row, [weights])
  np.testing.assert_allclose(found, [wanted[0, 0], wanted[1, 1]], atol=1e-6)


@pytest.mark.parametrize("family", ["gap", "vit"])
def test_images_need_not_be_squares(family):
  """The rows of the map are those of the image: attention to a mark stays where the mark is."""
  module, params = model(family, positions="none")
  images = np.zeros((1, 8, 24, 3), np.float32)
  maps, _ = inspection.rollout(module, params, images)
  assert maps.shape == (1, 2, 6)
  images[0, 4:, 20:] = 1  # the last patch
  marked, _ = inspection.rollout(module, params, images)
  assert np.abs(marked - maps).argmax() == 11


def test_a_single_head():
  _, layers = of("gap")
  module, params = model("gap")
  maps, _ = inspection.raw(module, params, IMAGES, layer=1, head=0)
  wanted = layers[1][:, 0].mean(axis=1).reshape(2, 4, 4)
  np.testing.assert_allclose(maps, wanted, atol=1e-6)
  module, params = model("vit")  # with a class token
  maps, _ = inspection.raw(module, params, IMAGES, layer=0, head=1)
  first = next(inspection.attention_weights(module, params, IMAGES))
  np.testing.assert_allclose(maps.flatten(), first[:, 1, 0, 1:].flatten(), atol=1e-6)


@pytest.mark.parametrize("family", ["vit", "gap"])
def test_all_heads_of_the_last_layer(family):
  module, params = model(family)
  maps, logits = inspection.heads(module, params, IMAGES)
  assert maps.shape == (2, 2, 4, 4)
  for head in range(2):
    one, wanted = inspection.raw(module, params, IMAGES, layer=1, head=head)
    np.testing.assert_allclose(maps[:, head], one, atol=1e-7)
  np.testing.assert_allclose(logits, wanted, atol=1e-6)


@pytest.mark.parametrize(
  ("family", "layer", "head", "message"),
  [
    ("gap", 2, 0, "layers are 0 to 1, heads 0 to 1"),
    ("gap", 0, 2, "layers are 0 to 1, heads 0 to 1"),
    ("gap", -1, 0, "layers are 0 to 1, heads 0 to 1"),
    ("axial", 0, 0, "makes no map"),
  ],
)
def test_there_is_no_such_map(family, layer, head, message):
  with pytest.raises(ValueError, match=message):
    inspection.raw(*model(family), IMAGES, layer=layer, head=head)


def test_the_rollout_of_axial_models_is_refused():
  with pytest.raises(ValueError, match="only within rows and within columns"):
    inspection.rollout(*model("axial"), IMAGES)
