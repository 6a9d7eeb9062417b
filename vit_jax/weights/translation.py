"""Translates parameters to PyTorch's names and layouts and back, by a table of names."""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

_NUMBER = re.compile(r"\{([0-9]+)\}")


@dataclasses.dataclass(frozen=True)
class Layout:
  """Converts an array to PyTorch's layout, and back for a number of attention heads."""

  there: Callable[[np.ndarray], np.ndarray]
  here: Callable[[np.ndarray, int], np.ndarray]


SAME = Layout(lambda x: x, lambda x, heads: x)
DENSE = Layout(lambda x: x.T, lambda x, heads: x.T)  # (in, out) here
CONVOLUTION = Layout(  # (height, width, in, out) here
  lambda x: x.transpose(3, 2, 0, 1), lambda x, heads: x.transpose(2, 3, 1, 0)
)
AS_CONVOLUTION = Layout(  # a dense kernel here, a 1 x 1 convolution there
  lambda x: x.T[:, :, None, None], lambda x, heads: x.reshape(x.shape[0], x.shape[1]).T
)
TO_HEADS = Layout(  # (in, heads, out) here, (heads * out, in) there
  lambda x: x.reshape(len(x), -1).T, lambda x, heads: x.T.reshape(x.shape[1], heads, -1)
)
TO_HEADS_BIAS = Layout(lambda x: x.reshape(-1), lambda x, heads: x.reshape(heads, -1))
FROM_HEADS = Layout(  # (heads, in, out) here, (out, heads * in) there
  lambda x: x.reshape(-1, x.shape[-1]).T, lambda x, heads: x.T.reshape(heads, -1, x.shape[0])
)
TOKEN = Layout(lambda x: x[0, 0], lambda x, heads: x[None, None])  # (1, 1, D) here, (D,) there
TABLE = Layout(lambda x: x[0], lambda x, heads: x[None])  # (1, N, D) here, (N, D) there

Row = tuple[str, str, Layout]
# Indices of the names in a row.
OURS = 0
THEIRS = 1


def norm(ours: str, theirs: str) -> tuple[Row, Row]:
  """The rows of a norm."""
  return (f"{ours}/scale", f"{theirs}.weight", SAME), (f"{ours}/bias", f"{theirs}.bias", SAME)


def layer(ours: str, theirs: str, kernel: Layout) -> tuple[Row, Row]:
  """The rows of a layer with a kernel and a bias."""
  return (f"{ours}/kernel", f"{theirs}.weight", kernel), (f"{ours}/bias", f"{theirs}.bias", SAME)


def to_heads(ours: str, theirs: str) -> tuple[Row, Row]:
  """The rows of queries, keys or values."""
  return (
    (f"{ours}/kernel", f"{theirs}.weight", TO_HEADS),
    (f"{ours}/bias", f"{theirs}.bias", TO_HEADS_BIAS),
  )


class Table:
  """Rows (our name, their name, layout), for translation in both directions.

  A number in a name is written {0} if it counts from 0, {1} if from 1, {01} if from 1 in two
  digits. Several rows with the same "their name" describe one array there: it is the concatenation
  of our arrays along the first axis, in the order of the rows.
  """

  def __init__(self, *rows: Row):
    self.rows = rows

  def __add__(self, other: "Table") -> "Table":
    return Table(*self.rows, *other.rows)

  def theirs(self, flat: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Translates {our name: array}.

    Raises:
      KeyError: the table has no row for a name, which is the error's argument.
    """
    if lacking := self.lacking(flat, OURS):
      raise KeyError(lacking[0])
    pieces = {}
    for ours, theirs, layout in self.rows:
      for name in filter(_pattern(ours).fullmatch, flat):
        array = layout.there(np.asarray(flat[name]))
        pieces.setdefault(_renamed(name, ours, theirs), []).append(array)
    return {name: _joined(arrays) for name, arrays in pieces.items()}

  def rows_of(self, name: str, side: int) -> list[Row]:
    """The rows for a name; `side` is OURS or THEIRS."""
    return [row for row in self.rows if _pattern(row[side]).fullmatch(name)]

  def lacking(self, names: Iterable[str], side: int) -> list[str]:
    """The names for which the table has no row, sorted."""
    return sorted(name for name in names if not self.rows_of(name, side))

  def ours(self, flat: dict[str, np.ndarray], heads: int = 0) -> dict[str, np.ndarray]:
    """Translates {their name: array}, for a model with this number of attention heads.

    Raises:
      KeyError: the table has no row for a name, which is the error's argument.
      ValueError: two names mean one parameter, or an array's shape does not suit its name.
    """
    translated = {}
    for name, array in flat.items():
      rows = self.rows_of(name, THEIRS)
      if not rows:
        raise KeyError(name)
      pieces = _split(name, array, len(rows))
      for (ours, theirs, layout), piece in zip(rows, pieces, strict=True):
        renamed = _renamed(name, theirs, ours)
        if renamed in translated:
          raise ValueError(f"two arrays mean {renamed}; one of them is called {name}")
        try:
          translated[renamed] = layout.here(piece, heads)
        except (ValueError, IndexError) as error:
          raise ValueError(f"{name} cannot have the shape {array.shape}") from error
    return translated


def nearest(tables: Sequence[Table], names: Iterable[str], side: int) -> Table:
  """The first of the tables that lack the fewest names; `side` is OURS or THEIRS."""
  return min(tables, key=lambda table: len(table.lacking(names, side)))


def _split(name, array, count):
  if count == 1:
    return [array]
  if not array.ndim or len(array) % count:
    raise ValueError(f"{name} is {array.shape} and must hold {count} equal parts")
  return np.split(array, count)


def _joined(arrays):
  if len(arrays) == 1:
    return arrays[0]
  return np.concatenate(arrays)


@functools.cache
def _pattern(template: str) -> re.Pattern:
  return re.compile("([0-9]+)".join(map(re.escape, _NUMBER.split(template)[::2])))


def _renamed(name: str, template: str, other: str) -> str:
  """The name, which has the form of `template`, in the form of `other`."""
  numbers = map(int, _pattern(template).fullmatch(name).groups())
  firsts = map(int, _NUMBER.findall(template))
  counts = (number - first for number, first in zip(numbers, firsts, strict=True))
  return _NUMBER.sub(lambda field: f"{next(counts) + int(field[1]):0{len(field[1])}d}", other)
