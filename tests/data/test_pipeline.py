"""Batches are a pure function of seed, step and host; evaluation has every example once."""

import contextlib
import errno
import functools
import logging
import subprocess
import sys
import textwrap
import time

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.data.numbered import (
  CLASSES,
  SIZE,
  TRAIN,
  Listed,
  assert_equal,
  evaluate,
  joined,
  jpegs,
  layout,
  numbered,
  train,
  whole,
)
from tests.data.pictures import saved
from vit_jax.data import images, pipeline
from vit_jax.data.layout import FieldError
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Example, Unlabelled

BALANCED = MixedSource(30, 1.0, (np.arange(27), np.arange(27, 30)))


@pytest.mark.parametrize("hosts", [2, 8])
@pytest.mark.parametrize(("batch_size", "parts"), [(16, ()), (208, ()), (208, [BALANCED])])
def test_hosts_share_the_very_same_global_batches(hosts, batch_size, parts):
  source = jpegs(30)
  options = dict(steps=3, start_step=2, batch_size=batch_size, parts=parts)
  shared = [train(source, host=host, hosts=hosts, **options) for host in range(hosts)]
  assert_equal(joined(shared), train(source, **options))


@pytest.mark.parametrize(("batch_size", "threads"), [(16, 1), (16, 3), (201, 3)])
def test_neither_threads_nor_a_stop_change_anything(batch_size, threads):
  source = jpegs(30)
  whole = train(source, steps=5, batch_size=batch_size)
  options = dict(batch_size=batch_size, threads=threads)
  assert_equal(train(source, steps=2, **options), whole[:2])
  assert_equal(train(source, steps=2, start_step=3, **options), whole[3:])


def odd_draw(image, *, rng):
  """Leaves half of a 64-bit word, and most of a block of words, unused in the generator."""
  rng.integers(7, dtype=np.uint32)
  return whole(np.full((1, 1, 3), int(256 * rng.random()), np.uint8))


@pytest.mark.parametrize("threads", [0, 3])
def test_draws_are_those_of_a_fresh_generator_at_the_position(threads):
  for seed in (0, 5):  # two seeds, because a thread keeps its generator
    batches = train(numbered(9), steps=4, seed=seed, cut=odd_draw, side=1, threads=threads)
    for position, pixel in enumerate(np.concatenate([b["image"][:, 0, 0, 0] for b in batches])):
      fresh = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
      assert pixel == odd_draw(None, rng=fresh).pixels[0, 0, 0]


def test_the_first_examples_are_those_of_the_first_batch_without_broken_ones():
  source = jpegs(30)
  source._examples[7] = OSError("gone")
  (batch,) = train(source, steps=1, seed=5, batch_size=30)
  parts = [MixedSource(30, 1.0)]
  first = pipeline.first_training(source, layout=layout(source), seed=5, parts=parts, count=30)
  there = batch["mask"] == 1
  assert len(first) == there.sum() == 29
  np.testing.assert_array_equal([item.row["image"] for item in first], batch["image"][there])
  np.testing.assert_array_equal([item.labels[0] for item in first], batch["labels"][there])


@pytest.mark.parametrize("side", [64, 128, 512])
def test_first_examples_of_the_size_of_the_model_have_pixels_of_their_own(side):
  """The decoder has one buffer, and a crop that is the whole image is not resized."""
  rng = np.random.default_rng(0)
  colours = rng.integers(0, 256, (8, 1, 1, 3), np.uint8)
  files = [saved(np.broadcast_to(colour, (side, side, 3)), "JPEG") for colour in colours]
  source = Listed([Example(data, (0,), str(i)) for i, data in enumerate(files)])
  cut = functools.partial(TRAIN, size=64, area=(1, 1), aspect=(1, 1), flip=False)
  parts = [MixedSource(8, 1.0)]
  made = layout(source, cut, 64)
  first = pipeline.first_training(source, layout=made, seed=0, parts=parts, count=8)
  (batch,) = train(source, steps=1, seed=0, batch_size=8, cut=cut, side=64)
  np.testing.assert_array_equal([item.row["image"] for item in first], batch["image"])
  assert len(np.unique([item.row["image"] for item in first], axis=0)) == 8


def test_multi_label_is_multi_hot_and_padded_with_no_labels():
  label_sets = [(), (3,), (0, 9), (1, 2, 3)]
  pixels = [np.full((9, 9, 3), 10 * row, np.uint8) for row in range(4)]
  examples = [Example(x, labels, "") for x, labels in zip(pixels, label_sets, strict=True)]
  source = Listed(examples, multi_label=True)
  (trained,) = train(source, steps=1, batch_size=8)
  (evaluated,) = evaluate(source, batch_size=5)
  assert (trained["mask"].sum(), evaluated["mask"].sum()) == (8, 4)
  for batch in (trained, evaluated):
    assert batch["labels"].dtype == np.uint8
    assert batch["labels"].shape == (len(batch["mask"]), CLASSES)
    for image, row in zip(batch["image"], batch["labels"], strict=True):
      assert tuple(np.nonzero(row)[0]) == label_sets[image[0, 0, 0] // 10]


def test_bad_images_are_masked_and_named(caplog):
  source = jpegs(20)
  source._examples[3] = source[3]._replace(image=source[3].image[:-40])
  source._examples[7] = FileNotFoundError(2, "No such file", "/data/gone.jpg")
  with caplog.at_level(logging.WARNING):
    (batch,) = train(source, steps=1, batch_size=20)
  assert (batch["mask"] == 0).sum() == 2
  assert (batch["image"][batch["mask"] == 0] == 0).all()
  assert all(image.any() for image in batch["image"][batch["mask"] == 1])
  assert "file 3.jpg" in caplog.text
  assert "/data/gone.jpg" in caplog.text
  assert len(caplog.records) == 2


class Flaky(Listed):
  """Every example fails the first `times` times that it is read, with the error number `code`."""

  def __init__(self, examples, *, times, code):
    super().__init__(examples)
    self._left, self._code = dict.fromkeys(range(len(examples)), times), code

  def __getitem__(self, index):
    self._left[index] -= 1
    if self._left[index] >= 0:
      raise OSError(self._code, "it failed", "file")
    return super().__getitem__(index)


@pytest.mark.parametrize(
  ("times", "code", "masked"),
  [(3, errno.EIO, 0), (3, errno.ESTALE, 0), (4, errno.EIO, 8), (1, errno.ENOENT, 8)],
)
def test_an_error_that_may_pass_is_tried_three_times_again(times, code, masked, caplog):
  (whole,) = train(jpegs(8), steps=1, batch_size=8)
  flaky = Flaky(jpegs(8)._examples, times=times, code=code)
  (batch,) = train(flaky, steps=1, batch_size=8)
  assert (batch["mask"] == 0).sum() == masked
  if not masked:
    assert_equal([batch], [whole])
    assert "Reading file 0.jpg is tried again in" in caplog.text
    (evaluated,) = evaluate(Flaky(jpegs(8)._examples, times=times, code=code), batch_size=8)
    assert evaluated["mask"].all()


@pytest.mark.parametrize("labelled", [True, False])
def test_nothing_but_bad_images(labelled):
  source = Listed([Example(b"rubbish", (1,), f"rubbish {index}") for index in range(4)])
  (batch,) = train(source if labelled else Unlabelled(source), steps=1, batch_size=8)
  assert batch["image"].shape == (8, SIZE, SIZE, 3)
  assert not batch["mask"].any()
  assert ("labels" in batch) == labelled


@pytest.mark.parametrize(("label", "threads"), [(CLASSES, 0), (CLASSES, 2), (-1, 0)])
def test_label_out_of_range_names_example_and_value(label, threads):
  source = jpegs(20)
  source._examples[11] = source[11]._replace(labels=(label,))
  message = rf"file 11\.jpg has label {label}, but the data has 10 classes"
  with pytest.raises(FieldError, match=message):
    train(source, steps=4, threads=threads)


def test_other_errors_are_not_hidden():
  def broken(image, *, rng):
    raise ZeroDivisionError("a fault in the transform")

  with pytest.raises(ZeroDivisionError, match="a fault in the transform"):
    train(jpegs(4), steps=1, threads=2, cut=broken)


def test_batch_that_hosts_cannot_share():
  with pytest.raises(ValueError, match="batch of 10 examples cannot be shared equally by 4 hosts"):
    train(jpegs(4), steps=1, batch_size=10, hosts=4)


# --- evaluation ---


@hypothesis.given(
  count=st.integers(1, 150),
  per_host=st.integers(1, 80),
  hosts=st.sampled_from((1, 2, 4, 8)),
  threads=st.sampled_from((0, 2)),
)
@hypothesis.settings(max_examples=60)
def test_every_example_is_evaluated_once_in_order(count, per_host, hosts, threads):
  options = dict(batch_size=per_host * hosts, hosts=hosts, threads=threads)
  shared = [evaluate(numbered(count), host=host, **options) for host in range(hosts)]
  assert len({len(batches) for batches in shared}) == 1
  batches = joined(shared)
  assert all(batch["image"].shape == (per_host * hosts, SIZE, SIZE, 3) for batch in batches)
  mask = np.concatenate([batch["mask"] for batch in batches])
  pixels = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches])
  labels = np.concatenate([batch["labels"] for batch in batches])
  np.testing.assert_array_equal(mask, np.arange(len(mask)) < count)
  np.testing.assert_array_equal(pixels[:count], np.arange(count) % 251)
  np.testing.assert_array_equal(labels[:count], np.arange(count) % CLASSES)
  assert not pixels[count:].any()


@pytest.mark.parametrize("threads", [0, 2])
def test_a_broken_image_stops_evaluation_and_is_named(threads):
  source = jpegs(20)
  source._examples[13] = source[13]._replace(image=source[13].image[:-40])
  with pytest.raises(images.BadImage, match=r"file 13\.jpg: .*truncated"):
    evaluate(source, batch_size=4, threads=threads)


# --- reading ahead ---


def test_decoding_runs_ahead_of_the_consumer_but_not_without_end():
  read = []

  class Watched(Listed):
    def __getitem__(self, index):
      read.append(index)
      return super().__getitem__(index)

  options = dict(batch_size=16, host=0, hosts=1, start=0, seed=0, threads=2)
  source = Watched(jpegs(30)._examples)
  with contextlib.closing(
    pipeline.train_batches(source, layout=layout(source), **options)
  ) as batches:
    next(batches)
    deadline = time.monotonic() + 10
    while len(read) < 3 * 16 and time.monotonic() < deadline:
      time.sleep(0.01)
    time.sleep(0.2)
  assert 3 * 16 <= len(read) <= 6 * 16


def test_a_program_that_fails_ends_with_batches_open():
  program = """
    from tests.data.numbered import layout
    from vit_jax.data import pipeline, sources

    options = dict(batch_size=64, host=0, hosts=1, start=0, threads=2)
    source = sources.open_source("synthetic:10")
    next(pipeline.train_batches(source, layout=layout(source), seed=0, **options))
    print("got one", flush=True)
    raise SystemExit(3)
  """
  words = [sys.executable, "-c", textwrap.dedent(program)]
  result = subprocess.run(words, capture_output=True, text=True, timeout=60)
  assert (result.stdout, result.returncode) == ("got one\n", 3), result.stderr
