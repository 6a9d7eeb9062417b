"""Mean attention distance: golden values, and weights whose distance is known."""

import numpy as np
import pytest

from tests.extras.inspection.miniatures import IMAGES, model
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.extras import inspection
from vit_jax.extras.inspection.distance import centres, mean_distance
from vit_jax.storage.tree import nest


def of(weights, grid=(3, 5), stride=4):
  return np.asarray(mean_distance(np.float32(weights), centres(grid, stride)))


def drawn(shape=(2, 4, 16, 16)):
  weights = np.random.default_rng(0).random(shape)
  return weights / weights.sum(axis=-1, keepdims=True)


def test_golden():
  """To 1e-6 of the values, which are about 16 pixels: nearer to them than float32 reaches."""
  record, wanted = golden.golden("vit"), golden.golden("inspection")["mean_distance"]
  params = nest(golden.make(record["shapes"]))
  found = inspection.mean_distances(models.module_of(params), params, golden.images(32))
  np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("stride", [4, 12])
def test_uniform_attention_has_the_mean_distance_of_the_grid(stride):
  places = [(stride * y, stride * x) for y in range(3) for x in range(5)]
  apart = [np.hypot(a - c, b - d) for a, b in places for c, d in places]
  distance = of(np.full((1, 1, 15, 15), 1 / 15), stride=stride)
  np.testing.assert_allclose(distance, np.mean(apart), rtol=1e-6)


def test_attention_to_itself_has_no_distance():
  assert of(np.eye(15)[None, None]) == 0


def test_the_class_token_does_not_count():
  """Whatever it gets, and whatever it attends to."""
  weights = drawn()
  patches = weights[..., 1:, 1:]
  alone = patches / patches.sum(axis=-1, keepdims=True)
  np.testing.assert_allclose(of(weights), of(alone), rtol=1e-5)


def test_a_hybrid_counts_the_stride_of_its_map():
  """Two tokens in a row of 16 pixels are 8 pixels apart."""
  module, params = model("hybrid")
  assert (module.grid(16, 16), module.stride()) == ((2, 2), 8)
  found = inspection.mean_distances(module, params, IMAGES)
  layers = inspection.attention_weights(module, params, IMAGES)
  wanted = [of(layer, (2, 2), 8).mean(axis=0) for layer in layers]
  np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_an_axial_model_has_a_distance_along_each_axis():
  """Of images of 2 x 4 patches: heads look along rows of 4 and along columns of 2."""
  module, params = model("axial", positions="none")
  images = IMAGES[:, :8]
  found = inspection.mean_distances(module, params, images)
  assert found.shape == (2, 2, 2)
  layers = list(inspection.attention_weights(module, params, images))
  for axis, length in ((0, 4), (1, 2)):
    apart = 4 * np.abs(np.arange(length)[:, None] - np.arange(length))
    wanted = (layers[2 + axis] * apart).sum(axis=-1).mean(axis=(0, 1, 3))
    np.testing.assert_allclose(found[axis, 1], wanted, rtol=1e-5)


def test_the_mean_over_images():
  module, params = model("gap")
  images, done = golden.images(16, batch=3), []
  together = inspection.mean_distances(module, params, images, on_image=lambda: done.append(1))
  alone = [inspection.mean_distances(module, params, images[i : i + 1]) for i in range(3)]
  np.testing.assert_allclose(together, np.mean(alone, axis=0), rtol=1e-6)
  assert len(done) == 3
