"""Sources that show the examples of other sources: a selection, other labels, several as one."""

import bisect
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from vit_jax.data.sources.base import Block, Example, Source


class View(Source):
  """The examples of another source; subclasses change what they say they change."""

  def __init__(self, source: Source):
    self._source = source
    self.identity = source.identity
    self.notes = source.notes
    self.class_names = source.class_names
    self.multi_label = source.multi_label
    self.distant = source.distant
    self.fields = source.fields

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> Example:
    example = self._source[self._row(index)]
    return example._replace(labels=self._seen(example.labels))

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of the example, as this view changes them."""
    return self._seen(self._source.labels(self._row(index)))

  def name(self, index: int) -> str:
    """As of the source."""
    return self._source.name(self._row(index))

  def size(self, index: int) -> int:
    """As of the source."""
    return self._source.size(self._row(index))

  def blocks(self) -> Iterator[Block]:
    """As of the source."""
    return self._source.blocks()

  def _row(self, index: int) -> int:
    """The index in the source of an example."""
    return index

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    """The labels in this view of an example with these labels in the source."""
    return labels


class Unlabelled(View):
  """The examples of `source` with no labels."""

  def __init__(self, source: Source):
    super().__init__(source)
    self.class_names = ()
    self.multi_label = False
    self.identity = f"{source.identity}, without labels"

  def labels(self, index: int) -> tuple[int, ...]:
    """None; reads nothing."""
    return self._seen((index,))

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    del labels
    return ()


class Renumbered(View):
  """The examples of a source, with other numbers for its classes.

  Args:
    source: the examples.
    numbers: {number of a class in the source: new number}; a label of no class becomes -1.
    class_names: the names by new number; the source may lack some of these classes.
  """

  def __init__(self, source: Source, numbers: Mapping[int, int], class_names: Sequence[str]):
    super().__init__(source)
    self._numbers = dict(numbers)
    self.class_names = tuple(class_names)

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(self._numbers.get(label, -1) for label in labels)


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
    indices = order[np.minimum(places, len(order) - 1)]
    return np.where(self._rows[indices] == rows, indices, -1)


class Selected(View):
  """The examples `rows` of `source`, in this order; `identity` identifies them, as in `Source`."""

  def __init__(self, source: Source, rows: Rows, identity: str):
    super().__init__(source)
    self._rows = rows
    self.identity = identity

  def __len__(self) -> int:
    return len(self._rows)

  def blocks(self) -> Iterator[Block]:
    """Those of the source, with indices of the selected examples."""
    for block in self._source.blocks():
      yield block._replace(index=functools.partial(_selected_index, block.index, self._rows))

  def _row(self, index: int) -> int:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    return self._rows[index]


def _selected_index(inner: Callable, outer: Rows, rows: np.ndarray) -> np.ndarray:
  indices = inner(rows)
  there = indices >= 0
  result = np.full(len(indices), -1)
  result[there] = outer.find(indices[there])
  return result


class Mixed(Source):
  """The examples of several sources, one source after the other.

  If the sources do not have the same classes and kind of labels, the examples have no labels. They
  have the fields that all sources declare alike.
  """

  def __init__(self, sources: Sequence[Source]):
    self.identity = f"mix of {'; '.join(source.identity for source in sources)}"
    kinds = {(tuple(source.class_names), source.multi_label) for source in sources}
    self.class_names = ()
    if len(kinds) == 1:
      self.class_names, self.multi_label = kinds.pop()
    self._sources = sources if self.class_names else [Unlabelled(source) for source in sources]
    self._ends = list(itertools.accumulate(map(len, sources)))
    self.distant = any(source.distant for source in sources)
    self.fields = {
      name: field
      for name, field in sources[0].fields.items()
      if all(source.fields.get(name) == field for source in sources)
    }

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> Example:
    source, row = self._at(index)
    return source[row]

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels that the source of the example gives."""
    source, row = self._at(index)
    return source.labels(row)

  def name(self, index: int) -> str:
    """The name that the source of the example gives."""
    source, row = self._at(index)
    return source.name(row)

  def size(self, index: int) -> int:
    """As in the source of the example."""
    source, row = self._at(index)
    return source.size(row)

  def blocks(self) -> Iterator[Block]:
    """The blocks of all sources."""
    for source, end in zip(self._sources, self._ends, strict=True):
      for block in source.blocks():
        index = functools.partial(_mixed_index, block.index, end - len(source))
        yield block._replace(index=index)

  def _at(self, index: int) -> tuple[Source, int]:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    number = bisect.bisect_right(self._ends, index)
    source = self._sources[number]
    return source, index - self._ends[number] + len(source)


def _mixed_index(inner: Callable, first: int, rows: np.ndarray) -> np.ndarray:
  indices = inner(rows)
  return np.where(indices < 0, indices, indices + first)
