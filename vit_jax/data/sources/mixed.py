"""Several sources as one."""

import bisect
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vit_jax.data.sources.base import Block, Example, Source


class Mixed:
  """The examples of several sources, one source after the other.

  If the sources do not have the same classes and kind of labels, the examples have no labels.
  """

  def __init__(self, sources: Sequence[Source]):
    self._sources = tuple(sources)
    self._ends = list(itertools.accumulate(map(len, self._sources)))
    kinds = {(tuple(source.class_names), source.multi_label) for source in self._sources}
    self.class_names, self.multi_label = kinds.pop() if len(kinds) == 1 else ((), False)
    self.identity = f"mix of {'; '.join(source.identity for source in self._sources)}"

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> Example:
    source, row = self._at(index)
    example = source[row]
    return example if self.class_names else example._replace(labels=())

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels that the source of the example gives."""
    source, row = self._at(index)
    return source.labels(row) if self.class_names else ()

  def name(self, index: int) -> str:
    """The name that the source of the example gives."""
    source, row = self._at(index)
    return source.name(row)

  def blocks(self) -> Iterator[Block]:
    """The blocks of all sources."""
    for source, end in zip(self._sources, self._ends, strict=True):
      for block in source.blocks():
        index = functools.partial(_shifted, block.index, end - len(source))
        yield block._replace(index=index)

  def _at(self, index: int) -> tuple[Source, int]:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    number = bisect.bisect_right(self._ends, index)
    source = self._sources[number]
    return source, index - self._ends[number] + len(source)


def _shifted(inner: Callable[[np.ndarray], np.ndarray], by: int, rows: np.ndarray) -> np.ndarray:
  found = inner(rows)
  return np.where(found < 0, found, found + by)
