"""Batches depend on (seed, step) alone; every example is counted as often as it should be."""

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

from tests.data import tfds_fixture
from vit_jax.data import images, pipeline, sources
from vit_jax.data.sources import Example

SIZE, CLASSES = 8, 10

TRAIN = functools.partial(
  images.train_image, size=SIZE, area=(0.05, 1.0), aspect=(0.75, 4 / 3), flip=True, max_pixels=10**6
)
EVALUATE = functools.partial(images.evaluate_image, size=SIZE, resize=0, max_pixels=10**6)


class Listed:
  """Examples from a list; an OSError in it is raised when its place is read."""

  identity = "listed"

  def __init__(self, examples, *, multi_label=False):
    self._examples = examples
    self.multi_label = multi_label
    self.class_names = tuple(str(label) for label in range(CLASSES))

  def __len__(self):
    return len(self._examples)

  def __getitem__(self, index):
    if isinstance(self._examples[index], OSError):
      raise self._examples[index]
    return self._examples[index]


def numbered(count: int) -> Listed:
  """Image `index` has every pixel equal to index % 251 and label index % 10."""
  return Listed(
    [
      Example(np.full((9, 9, 3), index % 251, np.uint8), (index % CLASSES,), f"number {index}")
      for index in range(count)
    ]
  )


def jpegs(count: int) -> Listed:
  rng = np.random.default_rng(0)
  return Listed(
    [
      Example(tfds_fixture.jpeg_of(rng), (index % CLASSES,), f"file {index}.jpg")
      for index in range(count)
    ]
  )


def train(source, *, steps: int, host=0, hosts=1, batch_size=16, start_step=0, seed=0, **options):
  """The first `steps` batches."""
  usual = dict(sampling="uniform", transform=TRAIN, threads=0, workers=0, num_classes=CLASSES)
  batches = pipeline.train_batches(
    source,
    batch_size=batch_size,
    host=host,
    hosts=hosts,
    start_step=start_step,
    seed=seed,
    **(usual | options),
  )
  try:
    return [next(batches) for _ in range(steps)]
  finally:
    batches.close()


def evaluate(source, *, batch_size: int, host=0, hosts=1, threads=0, workers=0):
  return list(
    pipeline.evaluate_batches(
      source,
      transform=EVALUATE,
      batch_size=batch_size,
      host=host,
      hosts=hosts,
      threads=threads,
      workers=workers,
      num_classes=CLASSES,
    )
  )


def assert_equal(first: list[dict], second: list[dict]) -> None:
  assert len(first) == len(second)
  for one, other in zip(first, second, strict=True):
    assert one.keys() == other.keys()
    for key in one:
      assert one[key].dtype == other[key].dtype
      np.testing.assert_array_equal(one[key], other[key])


def joined(per_host: list[list[dict]]) -> list[dict]:
  """Global batches of the hosts' batches."""
  return [
    {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}
    for batches in zip(*per_host, strict=True)
  ]


# --- training ---


def test_shapes_and_types():
  (batch,) = train(jpegs(30), steps=1)
  assert {key: (value.shape, value.dtype.name) for key, value in batch.items()} == {
    "image": ((16, SIZE, SIZE, 3), "uint8"),
    "labels": ((16,), "int32"),
    "mask": ((16,), "float32"),
  }
  assert batch["mask"].all()


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


@pytest.mark.parametrize(
  ("batch_size", "threads", "workers"), [(16, 1, 0), (16, 3, 0), (201, 3, 0), (201, 2, 2)]
)
def test_threads_and_workers_change_nothing(batch_size, threads, workers):
  source = jpegs(30)
  plain = train(source, steps=4, batch_size=batch_size)
  assert_equal(
    train(source, steps=4, batch_size=batch_size, threads=threads, workers=workers), plain
  )


def test_starting_at_a_step_continues_as_if_never_stopped():
  source = jpegs(30)
  whole = train(source, steps=9)
  assert_equal(train(source, steps=4, start_step=5, threads=2), whole[5:])


def test_a_late_step_is_reached_at_once():
  begin = time.monotonic()
  train(jpegs(30), steps=1, start_step=10_000_000)
  assert time.monotonic() - begin < 5


@hypothesis.given(
  count=st.integers(1, 60), batch_size=st.integers(1, 40), seed=st.integers(0, 2**32 - 1)
)
@hypothesis.settings(deadline=None, max_examples=30)
def test_every_epoch_has_each_example_once(count, batch_size, seed):
  steps = -(-3 * count // batch_size)
  batches = train(numbered(count), steps=steps, batch_size=batch_size, seed=seed)
  stream = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches])
  for epoch in range(3):
    part = stream[epoch * count : (epoch + 1) * count]
    np.testing.assert_array_equal(np.sort(part), np.arange(count))


def test_epochs_and_seeds_have_their_own_orders():
  orders = []
  for epoch, seed in ((0, 0), (1, 0), (0, 1)):
    (batch,) = train(numbered(100), steps=1, batch_size=100, start_step=epoch, seed=seed)
    orders.append(batch["image"][:, 0, 0, 0])
  for first, second in ((0, 1), (0, 2), (1, 2)):
    assert (orders[first] != orders[second]).mean() > 0.9
  assert (orders[0] != np.arange(100)).mean() > 0.9


def test_an_example_is_drawn_anew_every_epoch():
  source = jpegs(1)
  (batch,) = train(source, steps=1, batch_size=16)
  assert len(np.unique(batch["image"], axis=0)) == 16
  (other,) = train(source, steps=1, batch_size=16, seed=1)
  assert not np.array_equal(batch["image"], other["image"])


def test_draws_are_uniform_and_independent():
  """One draw each for 4,000 neighbouring positions."""

  def draw(image, *, rng):
    return np.full((1, 1, 3), int(256 * rng.random()), np.uint8)

  batches = train(numbered(4000), steps=40, batch_size=100, transform=draw)
  draws = np.concatenate([batch["image"][:, 0, 0, 0] for batch in batches]) / 255
  assert abs(draws.mean() - 0.5) < 0.02
  assert abs(draws.std() - 12**-0.5) < 0.02
  for lag in (1, 2, 10, 100):
    assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < 0.06


def odd_draw(image, *, rng):
  """Leaves half of a 64-bit word, and most of a block of them, in the generator."""
  rng.integers(7, dtype=np.uint32)
  return np.full((1, 1, 3), int(256 * rng.random()), np.uint8)


@pytest.mark.parametrize("threads", [0, 3])
def test_draws_are_those_of_a_fresh_generator_at_the_position(threads):
  for seed in (0, 5):  # in turn: a thread keeps its generator
    batches = train(numbered(9), steps=4, seed=seed, transform=odd_draw, threads=threads)
    for position, pixel in enumerate(np.concatenate([b["image"][:, 0, 0, 0] for b in batches])):
      fresh = np.random.Generator(np.random.Philox(key=seed, counter=position << 64))
      assert pixel == odd_draw(None, rng=fresh)[0, 0, 0]


def test_labels_go_with_their_images():
  for batch in train(numbered(200), steps=5, threads=2):
    np.testing.assert_array_equal(batch["labels"], batch["image"][:, 0, 0, 0] % CLASSES)


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


@pytest.mark.parametrize(
  ("label", "threads", "workers"),
  [(CLASSES, 0, 0), (CLASSES, 2, 0), (CLASSES, 1, 1), (-1, 0, 0), (-1, 2, 0)],
)
def test_label_out_of_range_names_example_and_value(label, threads, workers):
  source = jpegs(20)
  source._examples[11] = source[11]._replace(labels=(label,))
  with pytest.raises(
    pipeline.LabelError, match=rf"file 11\.jpg has label {label}, but num_classes is 10"
  ):
    train(source, steps=4, threads=threads, workers=workers)


def test_other_errors_are_not_hidden():
  def broken(image, *, rng):
    raise ZeroDivisionError("a fault in the transform")

  with pytest.raises(ZeroDivisionError, match="a fault in the transform"):
    train(jpegs(4), steps=1, threads=2, transform=broken)


def test_batch_that_hosts_cannot_share():
  with pytest.raises(ValueError, match="batch of 10 examples cannot be shared equally by 4 hosts"):
    train(jpegs(4), steps=1, batch_size=10, hosts=4)


def test_tfds_source(tmp_path, monkeypatch):
  name = tfds_fixture.write_multilabel_tfds(tmp_path, num_examples=20, num_classes=5, seed=0)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  source = sources.open_source(f"tfds:{name}", split="train[:75%]", num_classes=5)
  plain = train(source, steps=3, num_classes=5)
  assert plain[0]["labels"].shape == (16, 5)
  assert_equal(train(source, steps=3, num_classes=5, threads=2, workers=2), plain)


# --- evaluation ---


@hypothesis.given(
  count=st.integers(1, 150),
  per_host=st.integers(1, 80),
  hosts=st.sampled_from((1, 2, 4, 8)),
  threads=st.sampled_from((0, 2)),
)
@hypothesis.settings(deadline=None, max_examples=60)
def test_every_example_counts_once_in_order(count, per_host, hosts, threads):
  source = numbered(count)
  shared = [
    evaluate(source, batch_size=per_host * hosts, host=host, hosts=hosts, threads=threads)
    for host in range(hosts)
  ]
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


def test_evaluation_workers_change_nothing():
  source = jpegs(30)
  assert_equal(evaluate(source, batch_size=8, threads=1, workers=2), evaluate(source, batch_size=8))


def test_multi_label_evaluation_is_padded_with_no_labels():
  source = Listed([Example(np.ones((2, 2, 3), np.uint8), (1, 4), "")] * 3, multi_label=True)
  (batch,) = evaluate(source, batch_size=5)
  np.testing.assert_array_equal(batch["labels"].sum(axis=1), [2, 2, 2, 0, 0])


@pytest.mark.parametrize(("threads", "workers"), [(0, 0), (2, 0), (1, 1)])
def test_bad_image_stops_evaluation_and_is_named(threads, workers):
  source = jpegs(20)
  source._examples[13] = source[13]._replace(image=source[13].image[:-40])
  with pytest.raises(images.BadImage, match=r"file 13\.jpg: .*truncated"):
    evaluate(source, batch_size=4, threads=threads, workers=workers)


# --- running ahead, and ending ---


def test_decoding_runs_ahead_of_the_consumer():
  read = []

  class Watched(Listed):
    def __getitem__(self, index):
      read.append(index)
      return super().__getitem__(index)

  batches = pipeline.train_batches(
    Watched(jpegs(30)._examples),
    transform=TRAIN,
    seed=0,
    sampling="uniform",
    batch_size=16,
    host=0,
    hosts=1,
    start_step=0,
    num_classes=CLASSES,
    threads=2,
    workers=0,
  )
  next(batches)
  deadline = time.monotonic() + 10
  while len(read) < 3 * 16 and time.monotonic() < deadline:
    time.sleep(0.01)
  time.sleep(0.2)
  batches.close()
  assert len(read) >= 3 * 16
  assert len(read) <= 6 * 16  # but not without end


@pytest.mark.parametrize(
  ("threads", "workers", "end"),
  [
    (2, 0, ""),
    (2, 0, "batches.close()"),
    (2, 0, "raise SystemExit(3)"),
    (1, 2, "batches.close()"),
    (1, 2, "raise SystemExit(3)"),
  ],
)
def test_the_program_ends_with_batches_open(threads, workers, end):
  """Whether the iterator is closed, forgotten, or lost to an exception."""
  program = f"""
    import functools
    from vit_jax.data import images, pipeline, sources

    if __name__ == "__main__":
      batches = pipeline.train_batches(
        sources.open_source("synthetic", split="", num_classes=10),
        transform=functools.partial(
          images.train_image, size=32, area=(0.05, 1), aspect=(0.75, 1.33), flip=True,
          max_pixels=10**6),
        seed=0, sampling="uniform", batch_size=64, host=0, hosts=1, start_step=0, num_classes=10,
        threads={threads}, workers={workers})
      next(batches)
      print("got one", flush=True)
      {end}
  """
  done = subprocess.run(
    [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
  )
  assert done.stdout == "got one\n", done.stderr
  assert done.returncode == (3 if "SystemExit" in end else 0), done.stderr
