"""Parts of another source: without the examples of a list, and a random subset of fixed order."""

import hashlib
import os

import numpy as np

from vit_jax.config import reading
from vit_jax.data import order
from vit_jax.data.sources.base import Source, SourceError
from vit_jax.data.sources.selected import Selected

# Of no run: all seeds of an experiment see the same subset. Runs' own seeds are below 2**31.
_SEED = 2**32 - 1
_IDENTITY = "# source: "
_LINE = 4096  # bytes: longer lines are of another kind of file


class Subset(Selected):
  """The first `size` examples of a source in an order that is random and always the same.

  The order is a pseudo-random permutation that is computed where it is asked for, so that no memory
  is needed, however many the examples are. It depends on the number of examples alone: the smaller
  of two subsets of one source lies inside the larger.

  Args:
    source: the examples.
    size: how many of them.
    sampling: how the order is drawn, as config.data.sampling.

  Raises:
    SourceError: there are not so many.
  """

  def __init__(self, source: Source, size: int, *, sampling: str = "uniform"):
    if size > len(source):
      raise SourceError(
        f"subset={size} is more than the {len(source)} examples there are; give at most"
        f" {len(source)}, or 0 for all."
      )
    rows = _First(order.fixed(len(source), seed=_SEED, sampling=sampling), size)
    kind = "random" if sampling == order.GRAIN else "uniform"  # caches tell the two apart
    super().__init__(source, rows, f"{source.identity}, {kind} {size}")


class _First:
  """The first `size` positions of an order."""

  def __init__(self, whole: order.Order, size: int):
    self._whole, self._size = whole, size

  def __len__(self) -> int:
    return self._size

  def __getitem__(self, index: int) -> int:
    return self._whole[index]

  def find(self, rows: np.ndarray) -> np.ndarray:
    found = self._whole.find(rows)
    return np.where(found < self._size, found, -1)


class Remaining(Selected):
  """The examples of a source that a list does not name, in their order.

  Args:
    source: the examples.
    path: the list, as `write_exclusions` writes it.

  Raises:
    SourceError: the list cannot be read, is of other examples, or names all of them.
  """

  def __init__(self, source: Source, path: str):
    excluded = read_exclusions(path, source)
    if len(excluded) == len(source):
      raise SourceError(
        f'"{path}" (exclude) leaves none of the {len(source)} examples; shorten it.'
      )
    digest = hashlib.sha256(excluded.astype("<i8").tobytes()).hexdigest()[:16]
    identity = f"{source.identity}, without {len(excluded)} ({digest})"
    super().__init__(source, _Kept(excluded, len(source)), identity)


class _Kept:
  """The numbers below `length` that `excluded` (ascending) does not hold, in order."""

  def __init__(self, excluded: np.ndarray, length: int):
    self._length = length - len(excluded)
    # The k-th excluded number less k: how many are kept before it.
    self._kept_before = excluded - np.arange(len(excluded))

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index: int) -> int:
    return index + int(np.searchsorted(self._kept_before, index, side="right"))

  def find(self, rows: np.ndarray) -> np.ndarray:
    excluded = self._kept_before + np.arange(len(self._kept_before))
    before = np.searchsorted(excluded, rows)
    return np.where(np.isin(rows, excluded), -1, rows - before)


def write_exclusions(path: str, source: Source, indices, *, remarks=None) -> None:
  """Writes a list of examples that `Remaining` leaves out.

  The first line is "# source: " and the source's identity; then comes a line for each example: its
  index and, after a tab, a remark that is for readers only. Further lines that begin with # are
  remarks too.

  Args:
    path: the file; it appears when it is complete.
    source: the examples.
    indices: of those to leave out.
    remarks: {index: text}.
  """
  remarks = remarks or {}
  with open(f"{path}.partial", "w", encoding="utf-8", errors="surrogateescape") as stream:
    stream.write(f"{_IDENTITY}{source.identity}\n")
    for index in sorted(indices):
      remark = " ".join(remarks.get(index, "").split())[: _LINE // 8]
      stream.write(f"{index}\t{remark}\n" if remark else f"{index}\n")
  os.replace(f"{path}.partial", path)


def read_exclusions(path: str, source: Source) -> np.ndarray:
  """The indices that a list names, int64, ascending, each once.

  Raises:
    SourceError: it cannot be read, is no such list, or is of other examples than the source's.
  """
  file = os.path.expanduser(path)
  try:
    with open(file, encoding="utf-8", errors="surrogateescape", opener=reading.regular) as stream:
      _check_identity(stream.readline(_LINE), path, source)
      lines = enumerate(iter(lambda: stream.readline(_LINE), ""), 2)
      indices = np.fromiter(_indices(lines, path, len(source)), np.int64)
  except OSError as error:
    raise SourceError(f'"{path}" (exclude) cannot be read: {error.strerror}.') from error
  return np.unique(indices)


def _check_identity(line: str, path: str, source: Source) -> None:
  if not line.startswith(_IDENTITY):
    raise SourceError(
      f'"{path}" (exclude) is no list of examples: its first line must be "{_IDENTITY}" and the'
      f' source, here "{_IDENTITY}{source.identity}".'
    )
  found = line.removeprefix(_IDENTITY).rstrip("\n")
  if found != source.identity:
    raise SourceError(
      f'"{path}" (exclude) is of other examples: of "{found}", and this source is'
      f' "{source.identity}"; make a list of this one.'
    )


def _indices(lines, path: str, length: int):
  for number, line in lines:
    if line.startswith("#"):
      continue
    word = line.partition("\t")[0].strip()
    # Digits alone: int() would also take signs and spaces, and numbers of any length slowly.
    if not (word.isascii() and word.isdigit() and len(word) < 20 and int(word) < length):
      raise SourceError(
        f'"{path}" (exclude) has {word[:40]!r} in line {number}; a line begins with the index of an'
        f" example, 0 to {length - 1}."
      )
    yield int(word)
