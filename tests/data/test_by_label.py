"""Drawing images of each class, and finding the classes that occur."""

import functools

import numpy as np
import pytest

from vit_jax.data import by_label, sources


class Labelled(sources.Source):
  """A source with labels only, which counts how many labels are read."""

  __getitem__ = None

  def __init__(self, labels, classes):
    self.all = labels
    self.class_names = tuple(f"class {i}" for i in range(classes))
    self.read = 0

  def __len__(self):
    return len(self.all)

  def labels(self, index):
    self.read += 1
    if self.all[index] is None:
      raise OSError("gone")
    return (int(self.all[index]),)

  def name(self, index):
    return f"example {index}"


def test_the_first_of_each_class_in_permutations():
  labels = np.random.default_rng(1).integers(0, 7, 9000)
  source = Labelled(labels, 7)
  drawn = by_label.first_of_each_class(source, count=4, seeds=[0, 5], threads=3)
  for found, seed in zip(drawn, (0, 5), strict=True):
    order = np.random.default_rng(seed).permutation(9000)
    for label in range(7):
      np.testing.assert_array_equal(found[label], order[labels[order] == label][:4])
  orders = [np.random.default_rng(seed).permutation(9000)[:4096] for seed in (0, 5)]
  assert source.read == len(np.union1d(*orders))  # a stretch of each, and no label twice


def test_no_more_labels_are_read_than_needed():
  source = Labelled(np.arange(100_000) % 3, 3)
  drawn = by_label.first_of_each_class(source, count=25, seeds=[0], threads=2)
  assert source.read < 10_000
  assert len(set(drawn.ravel().tolist())) == 75


def test_too_few_images_names_the_class():
  source = Labelled(np.repeat([0, 1, 2], [9, 3, 2]), 3)
  message = r"Class 'class 2' has 2 images, but 4 .*\(2 classes"
  with pytest.raises(sources.SourceError, match=message):
    by_label.first_of_each_class(source, count=4, seeds=[0], threads=2)


@pytest.mark.parametrize(
  ("label", "message"),
  [(-1, r"example 2 has the labels \(-1,\)"), (2, r"labels \(2,\)"), (None, "not be read: gone")],
)
def test_labels_that_are_none(label, message):
  source = Labelled([0, 1, label], 2)
  for read in (
    functools.partial(by_label.first_of_each_class, count=2, seeds=[0]),
    by_label.occurring_classes,
    by_label.rows_of_classes,
  ):
    with pytest.raises(sources.SourceError, match=message):
      read(source, threads=2)


def test_classes_that_occur():
  source = Labelled(np.repeat([8, 2, 5], 3000), 10)
  assert by_label.occurring_classes(source, threads=2) == (2, 5, 8)


def test_the_rows_of_each_class_that_occurs():
  labels = np.random.default_rng(3).permutation(np.repeat([8, 2, 5], [3000, 1, 3000]))
  rows = by_label.rows_of_classes(Labelled(labels, 10), threads=2)
  assert len(rows) == 3
  for found, label in zip(rows, (2, 5, 8), strict=True):
    np.testing.assert_array_equal(found, np.flatnonzero(labels == label))


# --- a few to show ---

SORTED = ["a"] * 900 + ["b"] * 90 + ["c"] * 10


@pytest.mark.parametrize("count", [3, 8, 24])
def test_a_sorted_set_shows_all_its_classes_alike_often(count):
  found = by_label.of_all_classes(SORTED, count)
  assert len(set(found)) == count
  often = [[SORTED[i] for i in found].count(name) for name in "abc"]
  assert max(often) - min(often) <= 1
  assert found == sorted(found)  # here, by class too
  assert by_label.of_all_classes(["a", "b", "a"], count)[:2] == [0, 2]
  assert by_label.of_all_classes(SORTED, count) != by_label.of_all_classes(SORTED, count, seed=1)


def test_some_of_each_class_are_drawn_by_the_seed():
  source = Labelled(np.arange(9000) % 3, 3)
  drawn = by_label.of_source(source, 6)
  assert drawn == by_label.of_source(source, 6)
  assert drawn != by_label.of_source(source, 6, seed=1)
  assert sorted(source.labels(i)[0] for i in drawn) == [0, 0, 1, 1, 2, 2]
