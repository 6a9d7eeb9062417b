"""Resizing and centre crops of evaluation, and random squares of resized training images."""

import tracemalloc

import hypothesis
import numpy as np
import pytest
import simplejpeg
from hypothesis import strategies as st

from tests.data.pictures import CAP, picture
from vit_jax.data import images


def bilinear(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
  """Half-pixel centres, no antialiasing, written from the definition."""

  def taps(new: int, old: int):
    at = (np.arange(new) + 0.5) * old / new - 0.5
    low = np.floor(at).astype(int)
    return np.clip(low, 0, old - 1), np.clip(low + 1, 0, old - 1), (at - low)[:, None]

  top, bottom, down = taps(height, len(pixels))
  left, right, across = taps(width, pixels.shape[1])
  rows = pixels[top] * (1 - down[..., None]) + pixels[bottom] * down[..., None]
  return rows[:, left] * (1 - across) + rows[:, right] * across


def check_rounding(found: np.ndarray, exact: np.ndarray):
  """The nearest grey levels: at most half a level off, apart from float32's rounding, no bias."""
  off = found.astype(np.float64) - exact
  assert np.abs(off).max() <= 0.5 + 1e-3
  # Rounding has a variance of 1/12: five standard errors, in which the three colours count as one.
  assert abs(off.mean()) < max(0.003, 5 * np.sqrt(3 / 12 / off.size))


def noise(*shape: int) -> np.ndarray:
  return np.random.default_rng(shape).integers(0, 256, (*shape, 3), np.uint8)


# Enlarged, by whole factors too; the same size; reduced, by whole factors and others; one pixel.
SHAPES = [(48, 80), (100, 200), (192, 224), (224, 224), (448, 448), (672, 448), (375, 500), (1, 9)]


@pytest.mark.parametrize("shape", SHAPES)
def test_straight_to_the_square_in_evaluation_and_training(shape):
  pixels = noise(*shape)
  exact = bilinear(pixels, 224, 224)
  check_rounding(images.evaluate_image(pixels, size=224, resize=0, max_pixels=CAP), exact)
  every = dict(rng=np.random.default_rng(0), size=224, flip=False, max_pixels=CAP)
  check_rounding(images.train_square(pixels, resize=224, **every).pixels, exact)
  whole = shape[1] / shape[0]
  crop = images.train_image(pixels, area=(1, 1), aspect=(whole, whole), **every).pixels
  check_rounding(crop, exact)


@pytest.mark.parametrize("shape", [(48, 80), (80, 48), (48, 48)])
def test_smaller_side_then_central_crop(shape):
  pixels = noise(*shape)
  out = images.evaluate_image(pixels, size=20, resize=24, max_pixels=CAP)
  height, width = (side * 24 // 48 for side in shape)
  whole = bilinear(pixels, height, width)
  top, left = (height - 20) // 2, (width - 20) // 2
  check_rounding(out, whole[top : top + 20, left : left + 20])


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_images_of_a_cache_are_means_without_bias(factor):
  pixels = noise(128 * factor, 160 * factor)
  small = images.shrink(pixels, side=128, max_pixels=CAP)
  check_rounding(small, pixels.reshape(128, factor, 160, factor, 3).mean((1, 3)))


@hypothesis.given(
  height=st.integers(1, 300),
  width=st.integers(1, 300),
  size=st.integers(1, 64),
  more=st.floats(0, 1),
)
def test_evaluation_is_always_the_size_asked_for(height, width, size, more):
  pixels = np.zeros((height, width, 3), np.uint8)
  resize = size + int(more * size)
  out = images.evaluate_image(pixels, size=size, resize=resize, max_pixels=10**9)
  assert out.shape == (size, size, 3)


@pytest.mark.parametrize("side", [1, 3, 300])
@pytest.mark.parametrize("long", [301, 2001])
@pytest.mark.parametrize("turned", [False, True])
def test_the_middle_of_a_thin_image_is_that_of_the_whole(monkeypatch, side, long, turned):
  pixels = picture(side, long).transpose(1, 0, 2).copy() if turned else picture(side, long)
  whole = images.evaluate_image(pixels, size=56, resize=64, max_pixels=CAP)
  monkeypatch.setattr(images, "_MAX_RESIZED", 0)
  part = images.evaluate_image(pixels, size=56, resize=64, max_pixels=CAP)
  # The middle may lie up to a pixel elsewhere: the sides of both are rounded.
  steps = np.abs(np.diff(np.int32(whole), axis=0 if turned else 1)).max()
  assert np.abs(np.int32(part) - whole).max() <= 2 * steps + 1


@pytest.mark.parametrize("side", [3, 4])
@pytest.mark.parametrize("long", [500, 501])
def test_the_middle_of_a_thin_image_has_the_centre_of_the_whole(monkeypatch, side, long):
  """An image that is its own mirror image stays so, to a rounding."""
  half = picture(side, long)
  pixels = np.concatenate([half, half[:, ::-1]], axis=1)[:, long // 2 : -(long // 2)]
  monkeypatch.setattr(images, "_MAX_RESIZED", 0)
  for size in (55, 56):
    out = np.int32(images.evaluate_image(pixels, size=size, resize=64, max_pixels=CAP))
    assert np.abs(out - out[:, ::-1]).max() <= 1


@pytest.mark.parametrize("turned", [False, True])
def test_a_very_thin_image_needs_little_memory(turned):
  pixels = np.full((2**25, 1, 3) if turned else (1, 2**25, 3), 90, np.uint8)
  tracemalloc.start()
  out = images.evaluate_image(pixels, size=224, resize=256, max_pixels=2**26)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  np.testing.assert_array_equal(out, np.full((224, 224, 3), 90))
  assert peak < 2**24


def test_evaluation_decodes_exactly():
  """Evaluation never reduces images in the DCT, even large ones."""
  pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8)
  data = simplejpeg.encode_jpeg(pixels, quality=95)
  out = images.evaluate_image(data, size=32, resize=0, max_pixels=CAP)
  exact = images.evaluate_image(simplejpeg.decode_jpeg(data), size=32, resize=0, max_pixels=CAP)
  np.testing.assert_array_equal(out, exact)


def test_a_random_square_is_cut_out_of_the_whole_resized_image():
  pixels = picture(50, 90)

  def square(seed, flip):
    options = dict(size=20, resize=32, flip=flip, max_pixels=CAP)
    return images.train_square(pixels, rng=np.random.default_rng(seed), **options).pixels.tobytes()

  whole = images.evaluate_image(pixels, size=32, resize=0, max_pixels=CAP)
  places = [(top, left) for top in range(13) for left in range(13)]
  known = {whole[y : y + 20, x : x + 20].tobytes(): (y, x) for y, x in places}
  known |= {whole[y : y + 20, x : x + 20][:, ::-1].tobytes(): (y, x, "flipped") for y, x in places}
  flipped = [known[square(seed, True)] for seed in range(200)]
  assert 72 < sum(len(place) == 3 for place in flipped) < 128
  drawn = [known[square(seed, False)] for seed in range(400)]
  for axis in range(2):  # 13 places of equal probability: mean 6, within four standard errors
    values = [place[axis] for place in drawn]
    assert set(values) == set(range(13))
    assert abs(np.mean(values) - 6) < 4 * np.sqrt((13**2 - 1) / 12 / 400)
  assert len(set(drawn)) > 100


def test_square_image_is_the_centre_of_the_whole_image_made_square():
  pixels = noise(40, 90)
  whole = images.evaluate_image(pixels, size=32, resize=0, max_pixels=CAP)
  cut = images.evaluate_image(pixels, size=28, resize=32, squeeze=True, max_pixels=CAP)
  np.testing.assert_array_equal(cut, whole[2:30, 2:30])


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (dict(resize=20), "resize=20 is smaller than the central crop size=24"),
    (dict(max_pixels=3599), "more than the 3599 that are allowed"),
  ],
)
def test_what_cannot_be_evaluated(change, message):
  options = dict(size=24, resize=32, squeeze=True, max_pixels=CAP) | change
  with pytest.raises(ValueError, match=message):
    images.evaluate_image(noise(40, 90), **options)
