"""Selections of another source: a random subset, or all examples not on an exclusion list."""

import hashlib
import os

import numpy as np

from vit_jax.data.order import Permutation
from vit_jax.data.sources.base import Selected, Source, SourceError
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

# A fixed seed, so that all seeds of an experiment see the same subset. Runs have seeds below 2**31.
_SEED = 2**32 - 1
_IDENTITY = "# source: "
_LINE = 4096  # longest line in bytes; an exclusion list has shorter lines


class Subset(Selected):
  """The first `size` examples of a source in a fixed random order.

  The order is a pseudo-random permutation that is computed on demand, so it needs no memory. It
  depends only on the number of examples, so a larger subset of a source contains the smaller ones.

  Args:
    source: the examples.
    size: the number of examples in the subset.

  Raises:
    SourceError: the source has fewer examples.
  """

  def __init__(self, source: Source, size: int):
    if size > len(source):
      raise SourceError(
        f"subset={size} is more than the {len(source)} examples there are; give at most"
        f" {len(source)}, or 0 for all."
      )
    rows = _First(Permutation(len(source), seed=_SEED), size)
    super().__init__(source, rows, f"{source.identity}, uniform {size}")


class _First:
  """The first `size` positions of an order."""

  def __init__(self, whole: Permutation, size: int):
    self._whole = whole
    self._size = size

  def __len__(self) -> int:
    return self._size

  def __getitem__(self, index: int) -> int:
    return self._whole[index]

  def find(self, rows: np.ndarray) -> np.ndarray:
    positions = self._whole.find(rows)
    return np.where(positions < self._size, positions, -1)


class Remaining(Selected):
  """The examples of a source that an exclusion list does not name, in their order.

  Args:
    source: the examples.
    path: the list, written by `write_exclusions`.

  Raises:
    SourceError: the list cannot be read, is for another source, or names all examples.
  """

  def __init__(self, source: Source, path: str):
    excluded = read_exclusions(path, source)
    if len(excluded) == len(source):
      raise SourceError(
        f'"{path}" (exclude) leaves none of the {len(source)} examples; shorten the list.'
      )
    digest = hashlib.sha256(excluded.astype("<i8").tobytes()).hexdigest()[:16]
    identity = f"{source.identity}, without {len(excluded)} ({digest})"
    super().__init__(source, _Kept(excluded, len(source)), identity)


class _Kept:
  """The numbers below `length` that are not in `excluded` (ascending), in order."""

  def __init__(self, excluded: np.ndarray, length: int):
    self._length = length - len(excluded)
    # The k-th excluded number minus k is the number of kept numbers before it.
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
  """Writes an exclusion list, the examples that `Remaining` leaves out.

  The first line is "# source: " and the source's identity. Each example has a line with its index
  and, after a tab, a remark for human readers. Other lines that begin with # are remarks too.

  Args:
    path: the file; it appears when it is complete.
    source: the examples.
    indices: the examples to leave out.
    remarks: {index: text}.
  """
  remarks = remarks or {}
  lines = [f"{_IDENTITY}{source.identity}"]
  for index in sorted(indices):
    remark = " ".join(remarks.get(index, "").split())[: _LINE // 8]
    lines.append(f"{index}\t{remark}" if remark else f"{index}")
  text = "".join(f"{line}\n" for line in lines)
  files.write_bytes(path_of(path), text.encode(errors="surrogateescape"))


def read_exclusions(path: str, source: Source) -> np.ndarray:
  """Reads the indices of an exclusion list: int64, ascending, without repetitions.

  Raises:
    SourceError: the file cannot be read, is not such a list, or is for another source.
  """
  file = os.path.expanduser(path)
  try:
    with files.open_text(file, encoding="utf-8", errors="surrogateescape") as stream:
      _check_identity(stream.readline(_LINE), path, source)
      lines = enumerate(iter(lambda: stream.readline(_LINE), ""), 2)
      indices = np.fromiter(_indices(lines, path, len(source)), np.int64)
  except OSError as error:
    raise SourceError(f'"{path}" (exclude) cannot be read: {error.strerror}.') from error
  return np.unique(indices)


def _check_identity(line: str, path: str, source: Source) -> None:
  if not line.startswith(_IDENTITY):
    raise SourceError(
      f'"{path}" (exclude) is not a list of examples: its first line must be "{_IDENTITY}" and the'
      f' source, here "{_IDENTITY}{source.identity}".'
    )
  identity = line.removeprefix(_IDENTITY).rstrip("\n")
  if identity != source.identity:
    raise SourceError(
      f'"{path}" (exclude) is for other examples: for "{identity}", but this source is'
      f' "{source.identity}"; make a list for this source.'
    )


def _indices(lines, path: str, length: int):
  for number, line in lines:
    if line.startswith("#"):
      continue
    word = line.partition("\t")[0].strip()
    # Checked first, because int() also accepts signs and spaces, and is slow for long numbers.
    if not (word.isascii() and word.isdigit() and len(word) < 20 and int(word) < length):
      raise SourceError(
        f'"{path}" (exclude) has {word[:40]!r} in line {number}; a line must begin with the index'
        f" of an example, 0 to {length - 1}."
      )
    yield int(word)
