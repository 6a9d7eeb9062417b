"""Training batches are a pure function of seed, step and host."""

import logging

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
  joined,
  jpegs,
  numbered,
  train,
)
from vit_jax.data import pipeline
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Example


@pytest.mark.parametrize("hosts", [2, 4, 8])
@pytest.mark.parametrize("batch_size", [16, 208])
def test_hosts_share_the_very_same_global_batches(hosts, batch_size):
  source = jpegs(30)
  single = train(source, steps=3, start_step=2, batch_size=batch_size)
  shared = [
    train(source, steps=3, start_step=2, batch_size=batch_size, host=host, hosts=hosts)
    for host in range(hosts)
  ]
  assert_equal(joined(shared), single)


@pytest.mark.parametrize(("batch_size", "threads"), [(16, 1), (16, 3), (201, 3)])
def test_threads_change_nothing(batch_size, threads):
  source = jpegs(30)
  plain = train(source, steps=4, batch_size=batch_size)
  assert_equal(train(source, steps=4, batch_size=batch_size, threads=threads), plain)


def test_starting_at_a_step_continues_as_if_never_stopped():
  source = jpegs(30)
  whole = train(source, steps=9)
  assert_equal(train(source, steps=4, start_step=5, threads=2), whole[5:])


@hypothesis.given(
  count=st.integers(1, 60), batch_size=st.integers(1, 40), seed=st.integers(0, 2**32 - 1)
)
@hypothesis.settings(max_examples=30)
def test_every_epoch_has_each_example_once(count, batch_size, seed):
  steps = -(-3 * count // batch_size)
  batches = train(numbered(count), steps=steps, batch_size=batch_size, seed=seed)
  stream = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches])
  for epoch in range(3):
    part = stream[epoch * count : (epoch + 1) * count]
    np.testing.assert_array_equal(np.sort(part), np.arange(count))


def test_an_example_is_drawn_anew_every_epoch():
  source = jpegs(1)
  (batch,) = train(source, steps=1, batch_size=16)
  assert len(np.unique(batch["image"], axis=0)) == 16
  (other,) = train(source, steps=1, batch_size=16, seed=1)
  assert not np.array_equal(batch["image"], other["image"])


def test_draws_are_uniform_and_independent():
  """Makes one draw for each of 4,000 neighbouring positions."""

  def draw(image, *, rng):
    return np.full((1, 1, 3), int(256 * rng.random()), np.uint8)

  batches = train(numbered(4000), steps=40, batch_size=100, transform=draw)
  draws = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches]) / 255
  assert abs(draws.mean() - 0.5) < 0.02
  assert abs(draws.std() - 12**-0.5) < 0.02
  for lag in (1, 2, 10, 100):
    assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < 0.06


def odd_draw(image, *, rng):
  """Leaves half of a 64-bit word, and most of a block of words, unused in the generator."""
  rng.integers(7, dtype=np.uint32)
  return np.full((1, 1, 3), int(256 * rng.random()), np.uint8)


@pytest.mark.parametrize("threads", [0, 3])
def test_draws_are_those_of_a_fresh_generator_at_the_position(threads):
  for seed in (0, 5):  # two seeds, because a thread keeps its generator
    batches = train(numbered(9), steps=4, seed=seed, transform=odd_draw, threads=threads)
    for position, pixel in enumerate(np.concatenate([b["image"][:, 0, 0, 0] for b in batches])):
      fresh = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
      assert pixel == odd_draw(None, rng=fresh)[0, 0, 0]


def test_the_first_examples_are_those_of_the_first_batch_without_broken_ones():
  source = jpegs(30)
  source._examples[7] = OSError("gone")
  (batch,) = train(source, steps=1, seed=5, batch_size=30)
  first = pipeline.first_training(
    source,
    transform=TRAIN,
    seed=5,
    parts=[MixedSource(30, 1.0)],
    count=30,
  )
  whole = batch["mask"] == 1
  assert len(first) == whole.sum() == 29
  np.testing.assert_array_equal([item.image for item in first], batch["image"][whole])
  np.testing.assert_array_equal([item.labels[0] for item in first], batch["labels"][whole])


def test_multi_label_is_multi_hot():
  pixels = np.zeros((4, 4, 3), np.uint8)
  label_sets = [(), (3,), (0, 9), (1, 2, 3)]
  source = Listed(
    [Example(pixels + 10 * row, labels, "") for row, labels in enumerate(label_sets)],
    multi_label=True,
  )
  (batch,) = train(source, steps=1, batch_size=8)
  assert batch["labels"].dtype == np.uint8
  assert batch["labels"].shape == (8, CLASSES)
  for image, row in zip(batch["image"], batch["labels"], strict=True):
    assert tuple(np.nonzero(row)[0]) == label_sets[image[0, 0, 0] // 10]
  assert batch["mask"].all()


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


def test_nothing_but_bad_images():
  source = Listed([Example(b"rubbish", (1,), f"rubbish {index}") for index in range(4)])
  (batch,) = train(source, steps=1, batch_size=8)
  assert batch["image"].shape == (8, SIZE, SIZE, 3)
  assert not batch["mask"].any()


@pytest.mark.parametrize(("label", "threads"), [(CLASSES, 0), (CLASSES, 2), (-1, 0)])
def test_label_out_of_range_names_example_and_value(label, threads):
  source = jpegs(20)
  source._examples[11] = source[11]._replace(labels=(label,))
  with pytest.raises(
    pipeline.LabelError, match=rf"file 11\.jpg has label {label}, but the data has 10 classes"
  ):
    train(source, steps=4, threads=threads)


def test_other_errors_are_not_hidden():
  def broken(image, *, rng):
    raise ZeroDivisionError("a fault in the transform")

  with pytest.raises(ZeroDivisionError, match="a fault in the transform"):
    train(jpegs(4), steps=1, threads=2, transform=broken)


def test_batch_that_hosts_cannot_share():
  with pytest.raises(ValueError, match="batch of 10 examples cannot be shared equally by 4 hosts"):
    train(jpegs(4), steps=1, batch_size=10, hosts=4)
