"""A selection of the examples of a source."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from vit_jax.data.sources.base import Block, Example, Source


class Rows(Protocol):
  """Some rows of a source, in a certain order."""

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> int: ...

  def find(self, rows: np.ndarray) -> np.ndarray:
    """The index of each row; -1 for a row that is not included."""
    ...


class Listed:
  """Rows given as a list without repetitions."""

  def __init__(self, rows: Sequence[int]):
    self._rows = np.asarray(rows, np.int64)

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> int:
    return int(self._rows[index])

  def find(self, rows: np.ndarray) -> np.ndarray:
    """As in `Rows`."""
    order = np.argsort(self._rows)
    places = np.searchsorted(self._rows, rows, sorter=order)
    found = order[np.minimum(places, len(order) - 1)]
    return np.where(self._rows[found] == rows, found, -1)


class Selected:
  """The examples `rows` of `source`, in this order; `identity` identifies them, as in `Source`."""

  def __init__(self, source: Source, rows: Rows, identity: str):
    self._source, self._rows, self.identity = source, rows, identity
    self.class_names, self.multi_label = source.class_names, source.multi_label
    self.notes = getattr(source, "notes", ())

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> Example:
    return self._source[self._row(index)]

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels that the source gives."""
    return self._source.labels(self._row(index))

  def name(self, index: int) -> str:
    """The name that the source gives."""
    return self._source.name(self._row(index))

  def blocks(self) -> Iterator[Block]:
    """The blocks of the source, with indices of the selected examples."""
    for block in self._source.blocks():
      yield block._replace(index=functools.partial(_index, block.index, self._rows))

  def _row(self, index: int) -> int:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    return self._rows[index]


def _index(inner: Callable[[np.ndarray], np.ndarray], outer: Rows, rows: np.ndarray) -> np.ndarray:
  found = inner(rows)
  there = found >= 0
  result = np.full(len(found), -1)
  result[there] = outer.find(found[there])
  return result
