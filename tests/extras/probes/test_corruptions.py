"""The corruptions: bounds, determinism, growing severity, and a few by their formula."""

import io

import numpy as np
import pytest
from PIL import Image

from vit_jax.extras.probes import corruptions
from vit_jax.extras.probes.corruptions import CORRUPTIONS, SEVERITIES, corrupted

SIDE = 64


def picture():
  """A smooth picture with edges."""
  rows, columns = np.mgrid[:SIDE, :SIDE] / SIDE
  x = np.stack([rows, columns, 0.5 + 0.4 * np.sin(9 * rows * columns)], axis=-1)
  x[16:40, 20:44] = (0.9, 0.3, 0.1)
  return np.uint8(255 * x)


def test_all_but_frost():
  assert len(CORRUPTIONS) == 14
  assert SEVERITIES == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption(name):
  x = picture()
  changes = []
  for severity in SEVERITIES:
    y = corrupted(name, severity, x, 7)
    assert (y.shape, y.dtype) == (x.shape, np.uint8)
    changes.append(np.abs(np.float64(y) - x).mean())
  assert min(changes) > 0.5
  assert changes[-1] > changes[0] or name in ("elastic_transform", "zoom_blur")
  assert np.array_equal(corrupted(name, 3, x, 7), corrupted(name, 3, x, 7))


def test_noise_differs_between_images():
  x = picture()
  assert not np.array_equal(
    corrupted("gaussian_noise", 1, x, 0), corrupted("gaussian_noise", 1, x, 1)
  )


def test_noise_has_the_published_strength():
  grey = np.full((256, 256, 3), 128, np.uint8)
  noise = np.float64(corrupted("gaussian_noise", 1, grey, 0)) - 127.5
  assert noise.std() / 255 == pytest.approx(0.08, rel=0.02)
  shot = np.float64(corrupted("shot_noise", 2, grey, 0)) / 255
  assert shot.var() == pytest.approx(128 / 255 / 25, rel=0.05)
  hit = np.isin(corrupted("impulse_noise", 5, grey, 0), (0, 255))
  assert hit.mean() == pytest.approx(0.27, abs=0.01)


def test_contrast_and_jpeg_by_their_formula():
  x = picture()
  mean = x.mean(axis=(0, 1))
  np.testing.assert_allclose(corrupted("contrast", 2, x, 0), (x - mean) * 0.3 + mean, atol=1.01)
  stream = io.BytesIO()
  Image.fromarray(x).save(stream, "JPEG", quality=15)
  assert (
    np.abs(np.int64(corrupted("jpeg_compression", 3, x, 0)) - np.asarray(Image.open(stream))).max()
    <= 1
  )


def test_blurs_keep_the_mean_and_motion_goes_one_way():
  dot = np.zeros((SIDE, SIDE, 1), np.float32)
  dot[32, 32] = 1
  line = corruptions.moved(dot, 10, 3, 0.0)[..., 0]
  assert line.sum() == pytest.approx(1, abs=1e-5)
  rows, columns = np.nonzero(line > 1e-6)
  assert set(rows) == {32}
  assert columns.max() == 32
  weights = np.exp(-(np.arange(21) ** 2) / 18)
  np.testing.assert_allclose(line[32, 32:12:-1], (weights / weights.sum())[:20], atol=1e-6)
  up = corruptions.moved(dot, 10, 3, 90.0)[..., 0]
  assert set(np.nonzero(up > 1e-6)[1]) == {32}


def test_a_plasma_fractal_goes_from_0_to_1():
  height = corruptions.plasma(64, 2, np.random.default_rng(0))
  assert (height.min(), height.max()) == (0, 1)
  near = np.abs(np.diff(height, axis=0)).mean()
  assert near < np.abs(height - np.roll(height, 32, axis=0)).mean() / 2
