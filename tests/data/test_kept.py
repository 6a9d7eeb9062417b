"""Small training images are kept decoded: the same batches, with one reading of each image."""

import collections

import numpy as np
import pytest

from tests.data.numbered import Listed, assert_equal, train
from tests.data.pictures import picture, saved
from vit_jax.data import pipeline
from vit_jax.data.pipeline import DecodedCache
from vit_jax.data.sources import Example


class Counted(Listed):
  """Counts how often each example is read."""

  def __init__(self, examples):
    super().__init__(examples)
    self.reads = collections.Counter()

  def __getitem__(self, index):
    self.reads[index] += 1
    return super().__getitem__(index)


FILES = {
  "png": saved(picture(20, 30), "PNG"),
  "grey": saved(picture(20, 30)[..., 0], "PNG"),
  "pixels": picture(16, 16),
  "grey pixels": picture(16, 24)[..., 0],
  "jpeg": saved(picture(20, 30), "JPEG"),
  "large": saved(picture(128, 129), "PNG"),
  "broken": b"no image",
  "truncated": saved(picture(20, 30), "PNG")[:-40],
}
ONCE = {"png", "grey", "pixels", "grey pixels"}  # those that are kept


def source() -> Counted:
  return Counted([Example(file, (i % 3,), name) for i, (name, file) in enumerate(FILES.items())])


def test_batches_are_the_same_and_small_images_are_read_once():
  plain, counted = source(), source()
  options = dict(steps=5, batch_size=len(FILES))
  assert_equal(train(DecodedCache(counted), **options), train(plain, **options))
  assert set(plain.reads.values()) == {5}
  assert {name for i, name in enumerate(FILES) if counted.reads[i] == 1} == ONCE
  assert {*counted.reads.values()} == {1, 5}


def test_what_follows_cannot_change_a_kept_image():
  examples = DecodedCache(source())
  for index, name in enumerate(FILES):
    if name in ONCE:
      with pytest.raises(ValueError, match="read-only"):
        examples[index].image[0] = 0


def test_no_more_is_kept_than_the_memory_allows(monkeypatch):
  monkeypatch.setattr(pipeline, "_MOST_BYTES", 3 * 16 * 16)
  counted = Counted([Example(np.zeros((16, 16, 3), np.uint8), (0,), str(i)) for i in range(3)])
  examples = DecodedCache(counted)
  for _ in range(2):
    for index in range(3):
      assert examples[index].name == str(index)
  assert counted.reads == {0: 1, 1: 2, 2: 2}
