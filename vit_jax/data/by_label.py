"""Draws examples of a source by their labels, without reading images."""

import concurrent.futures
from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np

from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import Source, SourceError

AMONG = 512  # examples from which `of_source` chooses
_STRETCH = 4096  # labels to read at a time


def first_of_each_class(
  source: Source, *, count: int, seeds: Iterable[int], threads: int
) -> np.ndarray:
  """Rows of the first `count` examples of every class in seeded permutations of all examples.

  For every k up to `count`, the first k rows of a class are k of its examples, drawn uniformly
  without replacement. Stops reading labels when the rows are found: for 25 of each class, after
  about 60,000 of ImageNet's 1.28 million training images. Reads no label twice.

  Returns:
    (seeds, classes, count) int64, in the order of each permutation.

  Raises:
    SourceError: a class has too few examples, or labels cannot be read.
  """
  known = {}
  return np.stack([_first_of_each_class(source, count, seed, threads, known) for seed in seeds])


def _first_of_each_class(source, count, seed, threads, known):
  """As `first_of_each_class`, for one seed: (classes, count); `known` as for `_labels`."""
  order = np.random.default_rng(seed).permutation(len(source)).tolist()
  rows_of = [[] for _ in source.class_names]
  lacking = set(range(len(rows_of)))
  for row, labels in _labels(source, order, threads, known):
    (label,) = labels
    if len(rows_of[label]) < count:
      rows_of[label].append(row)
      if len(rows_of[label]) == count:
        lacking.remove(label)
    if not lacking:
      return np.array(rows_of)
  least = min(lacking, key=lambda label: len(rows_of[label]))
  raise SourceError(
    f"Class {source.class_names[least]!r} has {len(rows_of[least])} images, but {count} images of "
    f"each class are needed ({len(lacking)} classes have too few)"
  )


def occurring_classes(source: Source, *, threads: int) -> tuple[int, ...]:
  """The classes that occur as labels in a source, ascending.

  Raises:
    SourceError: labels cannot be read.
  """
  classes = set()
  for _, labels in _labels(source, range(len(source)), threads):
    classes.update(labels)
  return tuple(sorted(classes))


def rows_of_classes(source: Source, *, threads: int) -> tuple[np.ndarray, ...]:
  """The rows of each class with examples, ascending (int64); reads the labels of all examples.

  Args:
    source: examples with one label each.
    threads: number of threads that read labels.

  Raises:
    SourceError: labels cannot be read.
  """
  classes = _classes(source, threads)
  order = np.argsort(classes, kind="stable")
  ends = np.cumsum(np.bincount(classes))
  return tuple(rows for rows in np.split(order, ends[:-1]) if len(rows))


def counts_of_classes(source: Source, *, threads: int) -> np.ndarray:
  """The number of examples of each class, (classes,) int64; arguments as for `rows_of_classes`.

  Raises:
    SourceError: labels cannot be read.
  """
  return np.bincount(_classes(source, threads), minlength=len(source.class_names))


def of_all_classes(labels: Sequence[Hashable], count: int, seed: int = 0) -> list[int]:
  """Places of `count` random examples, or of all, from each class in turn; sorted by class."""
  order = np.random.default_rng(seed).permutation(len(labels)).tolist()
  turns = []
  seen = {}  # {label: number of its places so far}
  for place in order:
    turn = seen.get(labels[place], 0)
    seen[labels[place]] = turn + 1
    turns.append((turn, place))
  chosen = [place for _, place in sorted(turns, key=lambda pair: pair[0])[:count]]
  first = {label: i for i, label in reversed(list(enumerate(labels)))}
  return sorted(chosen, key=lambda place: (first[labels[place]], place))


def of_source(source: Source, count: int, seed: int = 0) -> list[int]:
  """Places of `count` examples of a source, as in `of_all_classes`; reads only labels."""
  among = min(len(source), AMONG)
  some = np.random.default_rng(seed).choice(len(source), among, replace=False).tolist()
  return [some[i] for i in of_all_classes([source.labels(i) for i in some], count, seed)]


def _classes(source: Source, threads: int) -> np.ndarray:
  """The one label of each example."""
  classes = np.empty(len(source), np.int64)
  for row, (label,) in _labels(source, range(len(source)), threads):
    classes[row] = label
  return classes


def _labels(
  source: Source, rows: Sequence[int], threads: int, known: dict[int, tuple[int, ...]] | None = None
) -> Iterator[tuple[int, tuple[int, ...]]]:
  """Yields (row, labels) of each row; several threads read the labels of a stretch.

  Labels by row that are in `known` are not read; those that are read are added to it.
  """
  with concurrent.futures.ThreadPoolExecutor(threads) as pool:
    for begin in range(0, len(rows), _STRETCH):
      stretch = rows[begin : begin + _STRETCH]
      read = {} if known is None else known
      try:
        missing = [row for row in stretch if row not in read]
        read.update(zip(missing, pool.map(source.labels, missing), strict=True))
      except (BadImage, OSError) as error:
        raise SourceError(f"Its labels cannot be read: {error}") from error
      for row in stretch:
        labels = read[row]
        if any(not 0 <= label < len(source.class_names) for label in labels):
          raise SourceError(
            f"{source.name(row)} has the labels {labels}, but labels must be in "
            f"0..{len(source.class_names) - 1}, the classes of the data"
          )
        yield row, labels
