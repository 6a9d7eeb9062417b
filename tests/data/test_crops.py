"""Training crops: their areas, places and pixels."""

import hashlib

import hypothesis
import numpy as np
import pytest
import simplejpeg
from hypothesis import strategies as st

from tests import resolved
from tests.data.pictures import AREA, ASPECT, crop, picture
from vit_jax.data import batches, crops, images
from vit_jax.data.crops import PUBLISHED, resized

SIDES = dict(height=st.integers(1, 700), width=st.integers(1, 700), seed=st.integers(0, 10**6))


def drawn(rule, height, width, seed, area):
  """A crop, which lies in the image."""
  bounds = dict(height=height, width=width, area=area, aspect=ASPECT)
  box = rule(np.random.default_rng(seed), **bounds)
  assert 0 <= box.top <= box.top + box.height <= height
  assert 0 <= box.left <= box.left + box.width <= width
  assert min(box.height, box.width) >= 1
  return box


@hypothesis.given(**SIDES, least=st.floats(0.02, 1.0), room=st.floats(0.01, 1.0))
@hypothesis.example(height=129, width=2, seed=0, least=0.0234375, room=1.0)
@hypothesis.settings(max_examples=300)
def test_crops_keep_to_area_aspect_and_image(height, width, seed, least, room):
  area = (least, min(1.0, least + room))
  box = drawn(crops.inception, height, width, seed, area)
  if (box.height, box.width) == (height, width):
    return
  least, most = (share * height * width for share in area)
  assert least <= box.height * box.width <= most
  # A side is rounded to whole pixels, by up to a half.
  assert (box.width - 0.5) / box.height <= ASPECT[1]
  # A crop as wide as the image may have been made one pixel higher, for its area.
  assert box.width + 0.5 >= ASPECT[0] * (box.height - (box.width == width))


def test_crops_fill_their_ranges():
  rng = np.random.default_rng(0)
  boxes = [
    crops.inception(rng, height=400, width=400, area=AREA, aspect=ASPECT) for _ in range(4000)
  ]
  areas = np.array([box.height * box.width for box in boxes]) / 400**2
  aspects = np.array([box.width / box.height for box in boxes])
  tops = np.array([box.top / (400 - box.height) for box in boxes if box.height < 400])
  lefts = np.array([box.left / (400 - box.width) for box in boxes if box.width < 400])
  assert areas.min() < 0.06
  assert areas.max() > 0.95
  # The mean area for heights that are uniform between sqrt(0.05) and about 1.
  assert 0.36 < areas.mean() < 0.44
  assert (aspects.min(), aspects.max()) == pytest.approx(ASPECT, abs=0.01)
  assert abs(aspects.mean() - np.mean(ASPECT)) < 0.01
  for places in (tops, lefts):
    assert abs(places.mean() - 0.5) < 0.02
    assert (places.min(), places.max()) == pytest.approx((0, 1), abs=0.01)


def test_crops_never_change():
  """Otherwise runs could not be resumed exactly."""
  rng, boxes = np.random.default_rng(0), []
  for i in range(2000):
    crop = dict(height=8 + i % 97, width=8 + i % 53, area=(0.3, 0.7), aspect=ASPECT)
    boxes.append(crops.inception(rng, **crop))
  assert hashlib.sha256(np.array(boxes, "<i4").tobytes()).hexdigest()[:16] == "ade61ce9ac5822a3"


def test_a_crop_that_rounding_took_out_may_come_back_to_the_very_bounds():
  assert drawn(crops.inception, 4, 4, 22, (0.25, 0.5)) == (1, 1, 2, 2)
  assert drawn(crops.inception, 4, 10, 27, (0.25, 0.5)) == (0, 1, 4, 5)


def test_every_place_has_the_same_probability_the_last_one_too():
  """TensorFlow's crops never touch the lower and the right edge."""
  rng = np.random.default_rng(0)
  crop = dict(height=8, width=6, area=(1 / 3, 1 / 3), aspect=(1, 1))  # 4 x 4 pixels
  boxes = [crops.inception(rng, **crop) for _ in range(3000)]
  assert {(box.height, box.width) for box in boxes} == {(4, 4)}
  for places, count in (([box.top for box in boxes], 5), ([box.left for box in boxes], 3)):
    found = np.bincount(places, minlength=count)
    assert len(found) == count
    # Chi-square of at most 4 degrees of freedom: 18.5 is exceeded once in 1,000 times.
    assert ((found - 3000 / count) ** 2).sum() / (3000 / count) < 18.5


def test_the_whole_image_when_no_crop_fits():
  assert drawn(crops.inception, 10, 300, 0, (0.9, 1.0)) == (0, 0, 10, 300)


@hypothesis.given(**SIDES, least=st.floats(0.02, 1.0))
@hypothesis.settings(max_examples=300)
def test_resized_crops_keep_to_aspect_and_image(height, width, seed, least):
  box = drawn(crops.random_resized, height, width, seed, (least, 1.0))
  # Both sides are rounded to whole pixels, by up to a half.
  assert (box.width - 0.5) / (box.height + 0.5) <= ASPECT[1]
  assert (box.width + 0.5) / (box.height - 0.5) >= ASPECT[0]


def test_areas_of_resized_crops_are_uniform():
  rng = np.random.default_rng(0)
  bounds = dict(height=400, width=400, area=(0.08, 0.5), aspect=ASPECT)
  boxes = [crops.random_resized(rng, **bounds) for _ in range(4000)]
  areas = np.sort([box.height * box.width / 400**2 for box in boxes])
  logs = np.sort(np.log([box.width / box.height for box in boxes]))
  for found, (low, high) in ((areas, (0.08, 0.5)), (logs, np.log(ASPECT))):
    # Kolmogorov and Smirnov: 0.031 is exceeded once in 1,000 times.
    assert abs((found - low) / (high - low) - np.linspace(0, 1, len(found))).max() < 0.031
  assert {int(box.top + box.height == 400) for box in boxes} == {0, 1}


def test_the_setting_chooses_the_rule():
  pixels, size = picture(64, 80), 32
  for name, rule in crops.RULES.items():
    data = resolved.data(image_size=size, crop_rule=name, flip=False)
    box = rule(np.random.default_rng(0), height=64, width=80, area=AREA, aspect=ASPECT)
    cut = pixels[box.top : box.top + box.height, box.left : box.left + box.width]
    out = batches.train_crop(data)(pixels, rng=np.random.default_rng(0)).pixels
    np.testing.assert_array_equal(out, resized(cut, height=size, width=size, resampling=PUBLISHED))


def test_flip_with_p_half_and_only_if_asked():
  pixels = picture(32, 32)
  draw = dict(size=32, area=(1, 1), aspect=(1, 1))
  assert all((crop(pixels, seed=i, flip=False, **draw) == pixels).all() for i in range(20))
  drawn = [crop(pixels, seed=i, flip=True, **draw) for i in range(200)]
  flipped = [out for out in drawn if (out == pixels[:, ::-1]).all()]
  assert len(flipped) + sum((out == pixels).all() for out in drawn) == 200
  assert 70 < len(flipped) < 130


def test_training_crop_of_a_jpeg_is_that_of_its_pixels():
  """Partial decoding gives the same pixels; at this size nothing is reduced."""
  data = simplejpeg.encode_jpeg(picture(160, 200), quality=95)
  decoded = simplejpeg.decode_jpeg(data)
  for seed in range(40):
    found, wanted = (crop(image, seed=seed, size=128) for image in (data, decoded))
    np.testing.assert_array_equal(found, wanted)


def test_reduced_decoding_keeps_the_crop_where_it_is():
  pixels = picture(640, 800)
  data = simplejpeg.encode_jpeg(pixels, quality=98, colorsubsampling="444")
  for seed in range(40):
    from_file, from_pixels = (
      crop(image, seed=seed, size=64, area=(0.2, 1)).astype(int) for image in (data, pixels)
    )
    assert np.abs(from_file - from_pixels).mean() < 3


@hypothesis.given(
  height=st.integers(1, 60),
  width=st.integers(1, 60),
  pad=st.integers(0, 7),
  seed=st.integers(0, 99),
)
@hypothesis.settings(max_examples=60)
def test_a_simple_random_crop_is_a_part_of_the_mirrored_image(height, width, pad, seed):
  pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
  rng, again = (np.random.default_rng(seed) for _ in range(2))
  common = dict(size=8, max_pixels=10**6)
  out = images.train_padded(pixels, rng=rng, pad=pad, flip=False, **common).pixels
  new = [round(side * 8 / min(height, width)) for side in (height, width)]
  whole = resized(pixels, height=new[0], width=new[1], resampling=PUBLISHED)
  mirrored = np.pad(whole, ((pad, pad), (pad, pad), (0, 0)), mode="reflect")
  top, left = (int((side - 7) * again.random()) for side in mirrored.shape[:2])
  np.testing.assert_array_equal(out, mirrored[top : top + 8, left : left + 8])


def test_a_very_thin_image_takes_no_more_memory():
  options = dict(rng=np.random.default_rng(0), size=224, pad=4, flip=True, max_pixels=10**6)
  out = images.train_padded(np.zeros((1, 200_000, 3), np.uint8), **options)
  assert out.pixels.shape == (224, 224, 3)
