"""Digits of scikit-learn in each format, to compare with the source that reads them."""

import numpy as np

from tests.data.opened import open_source
from tests.data.pictures import saved

COUNT = 60  # of the training images


def digits() -> list[tuple[bytes, int]]:
  """The first images as PNG files, with their labels."""
  source = open_source("digits", "train")
  return [(saved(source[i].image, "PNG"), source.labels(i)[0]) for i in range(COUNT)]


def folder(root) -> list[tuple[str, int]]:
  """Writes the images as files; (name, label) of each, in the order of the names."""
  root.mkdir()
  images = [(f"{i:03}.png", data, label) for i, (data, label) in enumerate(digits())]
  for name, data, _ in images:
    (root / name).write_bytes(data)
  return [(name, label) for name, _, label in images]


def assert_protocol(spec: str) -> None:
  """The source `spec` has the digits, in their order; parts, batches and overlap are as they must.

  The batches are those of the source "digits" bit for bit, also when they begin in the middle of an
  epoch, and on each of two hosts.
  """
  from vit_jax.data import leakage
  from vit_jax.data.sources import Subset

  source = open_source(spec)
  assert source.class_names == tuple("0123456789")
  first, rest = open_source(spec, "[:70%]"), open_source(spec, "[70%:]")
  assert len(first) + len(rest) == len(source) == COUNT
  assert leakage.shared(first, source).images == len(first)
  assert leakage.shared(first, rest) is None
  assert leakage.shared(rest, Subset(open_source(spec), COUNT)).images == len(rest)
  assert len({source.identity, first.identity, rest.identity}) == 3
  assert open_source(spec).identity == source.identity
  names = [source.name(i) for i in range(COUNT)]
  assert len({*names}) == COUNT
  kept = [first.name(i) for i in range(len(first))]
  assert kept == [name for name in names if name in kept]
  assert_unlabelled(open_source(spec, label_key=""))
  for host in range(2):
    for start in (0, 77):
      ours, theirs = (batches(s, host, start) for s in (source, original()))
      for key in ("image", "labels", "mask"):
        np.testing.assert_array_equal(ours[key], theirs[key])


def original():
  """The same digits from scikit-learn."""
  from vit_jax.data.sources import Listed, Selected

  return Selected(open_source("digits", "train"), Listed(range(COUNT)), "the first")


def assert_unlabelled(source) -> None:
  assert (len(source), source.class_names, source.labels(3)) == (COUNT, (), ())
  assert source[3].labels == ()


def batches(source, host: int, start: int):
  """The third training batch of a host, for a run that begins after `start` images."""
  import functools

  from vit_jax.data import images, pipeline

  transform = functools.partial(
    images.train_image, size=8, area=(0.5, 1), aspect=(1, 1), flip=True, max_pixels=100
  )
  read = pipeline.train_batches(
    source,
    transform=transform,
    seed=3,
    batch_size=16,
    host=host,
    hosts=2,
    start=start,
    threads=2,
  )
  found = [next(read) for _ in range(3)][-1]
  read.close()
  return found
