"""Pixels resized by Pillow's filters are Pillow's, and lie where the libraries put them."""

import numpy as np
import pytest
from PIL import Image

from vit_jax.config.data import FILTERS, RESAMPLING
from vit_jax.data import images

CAP = 2**26
SIZES = [(37, 61), (61, 37), (300, 203), (24, 24), (24, 31), (1, 9), (500, 7)]


def photo(height, width):
  """Smooth colours with edges and noise."""
  rng = np.random.default_rng(height * 1000 + width)
  rows, columns = np.mgrid[:height, :width]
  waves = [np.sin(rows / 9) * 80, np.cos(columns / 5) * 80, (rows // 8 + columns // 8) % 2 * 120]
  pixels = np.stack(waves, -1) + 110 + rng.normal(0, 15, (height, width, 3))
  return pixels.clip(0, 255).astype(np.uint8)


def pillow(pixels, height, width, name):
  return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling[name.upper()]))


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("sides", SIZES)
def test_a_square_is_that_of_pillow(name, sides):
  pixels = photo(*sides)
  for library in ("pillow", "torchvision"):
    how = dict(max_pixels=CAP, resampling=f"{library}_{name}")
    straight = images.evaluate_image(pixels, size=24, resize=0, **how)
    np.testing.assert_array_equal(straight, pillow(pixels, 24, 24, name))
    squeezed = images.evaluate_image(pixels, size=24, resize=28, squeeze=True, **how)
    np.testing.assert_array_equal(squeezed, pillow(pixels, 28, 28, name)[2:26, 2:26])


@pytest.mark.parametrize(("library", "rounded"), [("pillow", np.floor), ("torchvision", np.round)])
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("sides", SIZES)
def test_the_larger_side_is_rounded_down_and_the_centre_as_in_the_library(
  library, rounded, name, sides
):
  """torchvision's CenterCrop rounds half of what is left over; Transformers rounds it down."""
  pixels, short, long = photo(*sides), 27, int(27 * max(sides) / min(sides))
  height, width = (short, long) if sides[0] <= sides[1] else (long, short)
  whole = pillow(pixels, height, width, name)
  top, left = (int(rounded((side - 24) / 2)) for side in (height, width))
  out = images.evaluate_image(
    pixels, size=24, resize=27, max_pixels=CAP, resampling=f"{library}_{name}"
  )
  np.testing.assert_array_equal(out, whole[top : top + 24, left : left + 24])


@pytest.mark.parametrize("name", FILTERS)
def test_of_a_very_thin_image_only_the_centre_is_resized(monkeypatch, name):
  for sides in ((1, 900), (901, 3), (300, 203)):
    how = dict(size=24, resize=27, max_pixels=CAP, resampling=f"torchvision_{name}")
    whole = images.evaluate_image(photo(*sides), **how)
    monkeypatch.setattr(images, "_MAX_RESIZED", 0)
    part = images.evaluate_image(photo(*sides), **how)
    monkeypatch.undo()
    assert np.abs(np.int32(part) - whole).max() <= 1


@pytest.mark.parametrize("resampling", RESAMPLING[1:])
def test_training_crops_are_resized_by_the_same_filter(resampling):
  pixels, name = photo(60, 41), resampling.partition("_")[2]
  common = dict(rng=np.random.default_rng(0), flip=False, max_pixels=CAP, resampling=resampling)
  whole = images.train_image(
    pixels, size=16, area=(1, 1), aspect=(41 / 60, 41 / 60), **common
  ).pixels
  np.testing.assert_array_equal(whole, pillow(pixels, 16, 16, name))
  square = images.train_square(pixels, size=16, resize=16, **common).pixels
  np.testing.assert_array_equal(square, pillow(pixels, 16, 16, name))
  padded = images.train_padded(pixels[:41], size=16, pad=0, **common).pixels
  np.testing.assert_array_equal(padded, pillow(pixels[:41], 16, 16, name))


def test_an_image_of_the_size_asked_for_stays_as_it_is():
  pixels = photo(24, 24)
  for resampling in RESAMPLING:
    out = images.evaluate_image(pixels, size=24, resize=0, max_pixels=CAP, resampling=resampling)
    np.testing.assert_array_equal(out, pixels)
