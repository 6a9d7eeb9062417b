"""Targets of masked patches against golden values and against NumPy in float64."""

import json
import pathlib

import jax
import numpy as np
import pytest

from vit_jax.extras.masked_patches.targets import TARGETS, in_patches, joined

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "golden" / "masked.json").read_text())


def golden_images():
  """The images that the golden file describes."""
  rng = np.random.default_rng(1)
  images = rng.integers(0, 256, (2, 32, 32, 3), np.uint8)
  images[1, :16] = rng.integers(0, 256, 3, np.uint8)
  images[1, 16:, 16:] = 255
  return images


def test_classes_equal_the_golden_file():
  images = golden_images()
  found = TARGETS["mean_color"].of(images, 8)
  np.testing.assert_array_equal(found[..., 0], GOLDEN["mean_color"])
  found = TARGETS["down4"].of(images, 8)
  np.testing.assert_array_equal(found.reshape(2, 16, 4, 4), GOLDEN["down4"])


def test_pixels_equal_the_golden_file():
  found = TARGETS["pixels"].of(golden_images(), 8)
  assert found.shape == (2, 16, 8 * 8 * 3)
  assert abs(found).max() <= 1
  np.testing.assert_allclose(found.sum(axis=-1), GOLDEN["pixels_sum"], atol=1e-4)


@pytest.mark.parametrize("side", [4, 6, 7, 14, 16, 32])
@pytest.mark.parametrize("cells", [1, 4])
def test_classes_of_any_patch_size_against_numpy(side, cells):
  """Every pixel becomes cells x cells equal ones, so that a cell covers side x side of them."""
  rng = np.random.default_rng(side)
  patches = rng.integers(0, 256, (50, side, side, 3), np.uint8)
  patches[:8] = rng.integers(0, 256, (8, 1, 1, 3), np.uint8)  # also even ones, at the bins' ends
  patches[0], patches[1] = 255, 32
  fine = patches.astype(np.float64).repeat(cells, axis=1).repeat(cells, axis=2)
  means = fine.reshape(50, cells, side, cells, side, 3).mean(axis=(2, 4))
  levels = np.minimum(7, np.floor(means / 32)).astype(int)
  wanted = levels @ [64, 8, 1]
  found = TARGETS["mean_color" if cells == 1 else "down4"].of(patches, side)
  np.testing.assert_array_equal(found[:, 0], wanted.reshape(50, -1))


def test_patches_come_apart_and_together_in_raster_order():
  images = golden_images()
  patches = in_patches(images, 8)
  np.testing.assert_array_equal(patches[:, 5], images[:, 8:16, 8:16])
  np.testing.assert_array_equal(joined(patches, (32, 32)), images)


@pytest.mark.parametrize("name", ["mean_color", "down4"])
def test_cross_entropy_and_accuracy_against_numpy(name):
  target, rng = TARGETS[name], np.random.default_rng(0)
  targets = target.of(golden_images(), 8)
  logits = rng.normal(size=(*targets.shape, 512)).astype(np.float32)
  logits[0, 3, 0, targets[0, 3, 0]] = 20
  wide = np.float64(logits)
  logs = wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
  wanted = -np.take_along_axis(logs, np.asarray(targets)[..., None], axis=-1)[..., 0].mean(axis=-1)
  predictions = logits.reshape(2, 16, -1)
  np.testing.assert_allclose(target.errors(predictions, targets), wanted, rtol=1e-5, atol=1e-6)
  right = (logits.argmax(axis=-1) == targets).mean(axis=-1)
  assert right[0, 3] >= 1 / targets.shape[-1]
  np.testing.assert_allclose(target.scores(predictions, targets), right, rtol=1e-6)


def test_squared_error_against_numpy():
  target = TARGETS["pixels"]
  targets = target.of(golden_images(), 8)
  predictions = np.random.default_rng(0).normal(size=targets.shape).astype(np.float32)
  wanted = np.mean((np.float64(predictions) - np.float64(targets)) ** 2, axis=-1)
  np.testing.assert_allclose(target.errors(predictions, targets), wanted, rtol=1e-5)


@pytest.mark.parametrize("name", ["mean_color", "down4"])
def test_the_best_constant_of_classes_is_their_entropy_and_no_other_is_better(name):
  target, mask = TARGETS[name], np.array([1.0, 0.0, 1.0], np.float32)
  images = np.concatenate([golden_images(), golden_images()[:1, ::-1]])
  targets = target.of(images, 8)
  loss = target.constant_loss(target.statistics(targets, mask))
  kept = np.asarray(targets)[[0, 2]].reshape(-1, targets.shape[-1])
  shares = np.stack([np.bincount(cell, minlength=512) for cell in kept.T]) / len(kept)
  entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=-1).mean()
  np.testing.assert_allclose(loss, entropy, rtol=1e-6)

  def of_constant(shares):
    logits = np.broadcast_to(np.log(shares + 1e-30), (1, len(kept), *shares.shape))
    return target.errors(logits.reshape(1, len(kept), -1).astype(np.float32), kept[None]).mean()

  np.testing.assert_allclose(of_constant(shares), loss, rtol=1e-5)
  assert of_constant(0.9 * shares + 0.1 / 512) > loss


def test_the_best_constant_of_pixels_is_the_mean_patch():
  target, mask = TARGETS["pixels"], np.array([1.0, 0.0], np.float32)
  targets = target.of(golden_images(), 8)
  loss = target.constant_loss(target.statistics(targets, mask))
  np.testing.assert_allclose(loss, np.float64(targets)[0].var(axis=0).mean(), rtol=1e-5)


def test_predicted_pictures_have_the_predicted_colours():
  images = golden_images()
  for name in ("mean_color", "down4"):
    target = TARGETS[name]
    classes = target.of(images, 8)
    drawn = target.pictures(np.eye(512)[np.asarray(classes)].reshape(2, 16, -1), 8)
    np.testing.assert_array_equal(target.of(joined(drawn, (32, 32)), 8), classes)
  pixels = TARGETS["pixels"]
  drawn = jax.device_get(pixels.pictures(pixels.of(images, 8), 8))
  np.testing.assert_array_equal(joined(drawn, (32, 32)), images)


def test_predicted_pixels_out_of_range_are_black_or_white():
  predictions = np.float32([-7, -1.01, -1, -0.5, 0.5, 1, 1.01, 9]).repeat(6).reshape(1, 4, 12)
  drawn = TARGETS["pixels"].pictures(predictions, 2)
  expected = np.repeat([0, 0, 0, 64, 191, 255, 255, 255], 6)
  np.testing.assert_array_equal(np.ravel(drawn), expected)
