"""The content of batches from any start step, and the preparation of their images."""

import dataclasses
import functools

import numpy as np
import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.data import batches, images, sources
from vit_jax.data.batches import Reader
from vit_jax.data.order import MixedSource
from vit_jax.devices import mesh

MESH = mesh.make(c.Mesh(), batch_size=16, accumulation=1)
DATA = resolved.data(image_size=8)


def digits(split):
  return sources.open_source("digits", split=split)


def test_training_batches_resume_where_they_left_off():
  reader, source = Reader(DATA, MESH, 16, 1), digits("train")
  whole = reader.training(source, parts=(), seed=0, start=0)
  first = [next(whole) for _ in range(5)]
  later = reader.training(source, parts=(), seed=0, start=48)
  for batch in first[3:]:
    again = next(later)
    for key in batch:
      np.testing.assert_array_equal(batch[key], again[key])
  assert first[0]["image"].shape == (16, 8, 8, 3)
  assert not np.array_equal(first[0]["image"], first[1]["image"])


def test_each_image_comes_as_often_as_the_settings_say():
  reader, source = Reader(dataclasses.replace(DATA, repeats=4), MESH, 16, 1), digits("train")
  batch = next(reader.training(source, parts=(), seed=0, start=0))
  assert (batch["labels"].reshape(4, 4) == batch["labels"][::4, None]).all()
  first = reader.first_training(source, parts=[MixedSource(1437, 1.0)], seed=0, count=16)
  np.testing.assert_array_equal([item.row["image"] for item in first], batch["image"])


@pytest.mark.parametrize(
  ("batch_size", "accumulation", "images", "size"),
  [(32, 2, 360, 16), *((256, 1, *one) for one in ((1, 64), (64, 64), (65, 128), (300, 256)))],
)
def test_evaluation_batches_have_the_size_of_a_part_of_a_step_or_of_a_small_set(
  batch_size, accumulation, images, size
):
  """That of a small set is of eight rows, or more, on each of eight devices."""
  reader = Reader(DATA, MESH, batch_size, accumulation)
  source = sources.Subset(digits("test"), images)
  read = list(reader.evaluation(source))
  assert {len(batch["mask"]) for batch in read} == {size}
  assert sum(batch["mask"].sum() for batch in read) == len(source)


def test_small_sets_share_the_batch_of_a_larger_one_that_is_at_most_twice_as_large():
  counts = (1500, 600, 300, 150, 140, 96, 64)
  sizes = (1024, 1024, 320, 320, 320, 128, 128)
  reader = Reader(DATA, MESH, 1024, 1, scored=counts)
  assert tuple(map(reader.evaluation_size, counts)) == sizes
  assert tuple(map(reader.evaluation_size, (5000, 500, 1))) == (1024, 1024, 128)  # others


@pytest.mark.parametrize("resize", [0, 12])
@pytest.mark.parametrize("resampling", ["", "pillow_bicubic"])
def test_images_are_evaluated_as_they_are_prepared_one_by_one(resize, resampling):
  data = dataclasses.replace(DATA, resampling=resampling, evaluate_resize=14, evaluate_squeeze=True)
  reader, source = Reader(data, MESH, 16, 1), digits("test")
  common = dict(size=8, resampling=resampling or "bilinear", max_pixels=DATA.max_pixels)
  kept, squeezed = dict(resize=resize, squeeze=False), dict(resize=resize, squeeze=True)
  for read, how in (
    (reader.evaluation(source, **kept), kept),
    (reader.evaluation(source, **squeezed), squeezed),
    (reader.evaluation(source), dict(resize=14, squeeze=True)),
  ):
    found = next(read)["image"]
    for row in range(16):
      wanted = images.evaluate_image(source[row].image, **how, **common)
      np.testing.assert_array_equal(found[row], wanted)


def test_batches_on_the_devices_are_closed_at_the_end():
  read = Reader(DATA, MESH, 16, 1).training(digits("train"), parts=(), seed=0, start=0)
  closed, close = [], read.close
  read.close = lambda: closed.append(close())
  with Reader(DATA, MESH, 16, 1).ahead(read) as ahead:
    assert next(ahead)["image"].sharding == mesh.batch_sharding(MESH)
    assert not closed
  assert closed


@pytest.mark.parametrize("flip", [False, True])
def test_training_images_are_crops_or_squares_of_the_resized_image(flip):
  pixels = np.random.default_rng(0).integers(0, 256, (30, 20, 3), np.uint8)
  crop = dict(area=(0.5, 0.6), aspect=(1.0, 1.5))
  data = resolved.data(image_size=8, crop_area=crop["area"], crop_aspect=crop["aspect"], flip=flip)
  common = dict(size=8, flip=flip, max_pixels=data.max_pixels)
  for settings, expected in (
    (data, functools.partial(images.train_image, **crop)),
    (dataclasses.replace(data, train_resize=12), functools.partial(images.train_square, resize=12)),
    (dataclasses.replace(data, train_pad=2), functools.partial(images.train_padded, pad=2)),
  ):
    for seed in range(4):
      drawn = batches.train_transform(settings)(pixels, rng=np.random.default_rng(seed))
      wanted = expected(pixels, rng=np.random.default_rng(seed), **common)
      np.testing.assert_array_equal(drawn.pixels, wanted.pixels)
      assert drawn[1:] == wanted[1:]
