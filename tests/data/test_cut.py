"""Values of single pixels follow the crop and the flip of their image."""

import dataclasses
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests import resolved
from vit_jax.data import batches
from vit_jax.data.crops import Box, Cut, follow

SIDE = 16


def places(height, width):
  """An image whose pixels say where they are, and the same as values of its pixels."""
  row, column = np.mgrid[:height, :width]
  pixels = np.uint8(np.stack([row, column, np.zeros_like(row)], axis=-1))
  return pixels, np.stack([row, column], axis=-1)


DATA = resolved.data(image_size=SIDE, crop_area=(0.1, 1.0), flip=True)
TRAINING = {
  "inception": DATA,
  "random_resized": dataclasses.replace(DATA, crop_rule="random_resized"),
  "square": dataclasses.replace(DATA, train_resize=24),
  "padded": dataclasses.replace(DATA, train_pad=5),
}
SIDES = st.integers(12, 200)


def check(cut, values):
  """The nearest pixel is half a pixel from the centre at most, and so is what resizing rounded."""
  found = follow(values, cut)
  assert found.shape == (SIDE, SIDE, 2)
  assert np.abs(found - cut.pixels[..., :2].astype(int)).max() <= 1


@pytest.mark.parametrize("rule", TRAINING)
@settings(max_examples=30, deadline=None)
@given(height=SIDES, width=SIDES, seed=st.integers(0, 2**32 - 1))
def test_training_crops(rule, height, width, seed):
  pixels, values = places(height, width)
  cut = batches.train_transform(TRAINING[rule])(pixels, rng=np.random.default_rng(seed))
  assert cut.image == (height, width)
  check(cut, values)


@pytest.mark.parametrize(("resize", "squeeze"), [(0, False), (20, False), (20, True)])
@settings(max_examples=20, deadline=None)
@given(height=SIDES, width=SIDES)
def test_evaluation(resize, squeeze, height, width):
  pixels, values = places(height, width)
  check(batches.evaluation_transform(DATA, resize=resize, squeeze=squeeze)(pixels), values)


@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_of_a_file_only_a_part_of_which_is_decoded(orientation):
  """Also at a reduced resolution; and values are for the image as it is seen, upright."""
  pixels, values = places(200, 160)
  turned = {1: 0, 6: 1, 8: 3}[orientation]  # quarter turns to the left of what is stored
  exif, stream = Image.Exif(), io.BytesIO()
  exif[0x0112] = orientation
  stored = Image.fromarray(np.rot90(pixels, turned))
  stored.save(stream, "JPEG", quality=100, subsampling=0, exif=exif)
  for seed in range(20):
    cut = batches.train_transform(DATA)(stream.getvalue(), rng=np.random.default_rng(seed))
    assert cut.image == (200, 160)
    found = follow(values, cut)
    away = np.abs(found - cut.pixels[..., :2].astype(int))[2:-2, 2:-2]
    assert away.max() <= 14  # pixels of up to 12.5, and JPEG's losses
    assert away.mean() < 4


def test_each_value_is_that_of_the_nearest_pixel_and_mirrored_beyond_the_edges():
  values = np.arange(8 * 6).reshape(8, 6)
  square = np.zeros((4, 4, 3), np.uint8)
  whole = Cut(square, (8, 6), (4, 3), Box(-1, 0, 4, 3), flipped=False)
  rows, columns = [3, 1, 3, 5], [0, 2, 3, 5]
  np.testing.assert_array_equal(follow(values, whole), values[rows][:, columns])
  mirrored = follow(values, whole._replace(flipped=True))
  np.testing.assert_array_equal(mirrored, values[rows][:, columns[::-1]])
  below = Cut(square, (8, 6), (4, 3), Box(2, 0, 4, 3))
  np.testing.assert_array_equal(follow(values, below), values[[5, 7, 5, 3]][:, columns])
