"""Translates parameters to PyTorch's names and layouts and back, by a table with a row for each."""

import dataclasses
import functools
import re
from collections.abc import Callable

import numpy as np

_NUMBER = re.compile(r"\{([0-9]+)\}")


@dataclasses.dataclass(frozen=True)
class Layout:
  """How an array is laid out there, and back here by the number of attention heads."""

  there: Callable[[np.ndarray], np.ndarray]
  here: Callable[[np.ndarray, int], np.ndarray]


SAME = Layout(lambda x: x, lambda x, heads: x)
DENSE = Layout(lambda x: x.T, lambda x, heads: x.T)  # (in, out) here
CONVOLUTION = Layout(  # (height, width, in, out) here
  lambda x: x.transpose(3, 2, 0, 1), lambda x, heads: x.transpose(2, 3, 1, 0)
)
AS_CONVOLUTION = Layout(  # a dense kernel here, a 1 x 1 convolution there
  lambda x: x.T[:, :, None, None], lambda x, heads: x[:, :, 0, 0].T
)
TO_HEADS = Layout(  # (in, heads, out) here, (heads * out, in) there
  lambda x: x.reshape(len(x), -1).T, lambda x, heads: x.T.reshape(x.shape[1], heads, -1)
)
TO_HEADS_BIAS = Layout(lambda x: x.reshape(-1), lambda x, heads: x.reshape(heads, -1))
FROM_HEADS = Layout(  # (heads, in, out) here, (out, heads * in) there
  lambda x: x.reshape(-1, x.shape[-1]).T, lambda x, heads: x.T.reshape(heads, -1, x.shape[0])
)


Row = tuple[str, str, Layout]


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
  digits. Rows with the same name of theirs are the parts of one array, joined along its
  first axis in the order of the rows.
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
    parts, left = {}, dict(flat)
    for ours, theirs, layout in self.rows:
      for name in [name for name in left if _pattern(ours).fullmatch(name)]:
        array = layout.there(np.asarray(left.pop(name)))
        parts.setdefault(_renamed(name, ours, theirs), []).append(array)
    if left:
      raise KeyError(min(left))
    return {name: np.concatenate(x) if len(x) > 1 else x[0] for name, x in parts.items()}

  def rows_of(self, theirs: str) -> list[Row]:
    """The rows for a name of theirs.

    Raises:
      KeyError: there is none; the name is the error's argument.
    """
    rows = [row for row in self.rows if _pattern(row[1]).fullmatch(theirs)]
    if not rows:
      raise KeyError(theirs)
    return rows

  def ours(self, flat: dict[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """Translates {their name: array}.

    Raises:
      KeyError: the table has no row for a name, which is the error's argument.
      ValueError: two names mean one parameter, or an array's shape does not suit its name.
    """
    found = {}
    for name, array in flat.items():
      rows = self.rows_of(name)
      for (ours, theirs, layout), part in zip(rows, _split(name, array, len(rows)), strict=True):
        renamed = _renamed(name, theirs, ours)
        if renamed in found:
          raise ValueError(f"two arrays mean {renamed}; one of them is called {name}")
        try:
          found[renamed] = layout.here(part, heads)
        except (ValueError, IndexError) as error:
          raise ValueError(f"{name} cannot have the shape {array.shape}") from error
    return found


def _split(name, array, count):
  if count > 1 and (not array.ndim or len(array) % count):
    raise ValueError(f"{name} is {array.shape} and must hold {count} equal parts")
  return np.split(array, count) if count > 1 else [array]


@functools.cache
def _pattern(template: str) -> re.Pattern:
  return re.compile("([0-9]+)".join(map(re.escape, _NUMBER.split(template)[::2])))


def _renamed(name: str, template: str, other: str) -> str:
  """The name, which has the form of `template`, in the form of `other`."""
  numbers = map(int, _pattern(template).fullmatch(name).groups())
  firsts = map(int, _NUMBER.findall(template))
  counts = (number - first for number, first in zip(numbers, firsts, strict=True))
  return _NUMBER.sub(lambda field: f"{next(counts) + int(field[1]):0{len(field[1])}d}", other)
