"""Refuses multi-hot vectors, with a 0 or a 1 for each class, where lists of labels are expected.

They look like lists of the class numbers 0 and 1. They are recognised if a row has a label twice,
or if all rows have both labels. Otherwise [0, 1] is a list of class numbers.
"""

import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from vit_jax.data.sources.base import SourceError
from vit_jax.process.text import shown

_BITS = ({"0", "1"}, {"True", "False"}, {"true", "false"})
_LIST = re.compile(r"\[.*\]|[01](?:[ ,;]+[01])+", re.DOTALL)
_INSTEAD = (
  "are these vectors with a 0 or a 1 for each class (multi-hot)? Give each image the names or"
  " numbers of its classes instead, each once."
)
_CELLS = {"0", "1", "0.0", "1.0", "true", "false"}  # of a column for one class


def check(words: Sequence[str], numbers: np.ndarray, ends: np.ndarray) -> None:
  """Checks that the labels of all rows are lists of different classes.

  Args:
    words: the text of each label in the data, by number.
    numbers: the labels of all rows, one row after the other.
    ends: (rows,) the end of each row's labels in `numbers`.

  Raises:
    SourceError: a row has a label twice, or all rows have the labels 0 and 1.
  """
  rows = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
  order = np.lexsort((numbers, rows))
  pairs = np.stack([rows[order], numbers[order]], -1)
  twice = np.flatnonzero((pairs[1:] == pairs[:-1]).all(-1))
  if len(twice):
    row = pairs[twice[0]][0]
    labels = [words[number] for number in numbers[rows == row]]
    raise SourceError(f"row {row} (counted from 0) {repeated(labels)}")
  if len(ends) > 1 and len(numbers) == 2 * len(ends) and {*words} in _BITS:
    raise SourceError(f"each row has the labels {shown([*words])}; {_INSTEAD}")


def repeated(labels: Sequence) -> str:
  """The rest of a sentence, after the name of an image: that it has a label twice."""
  return f"has the labels {shown([*labels])}, one of them more than once; {_INSTEAD}"


def check_texts(names: Sequence[str]) -> None:
  """Checks that the names are not lists written as text.

  Raises:
    SourceError: all names are such lists.
  """
  if names and all(map(_LIST.fullmatch, names)):
    raise SourceError(
      f"the labels are texts such as {shown(names[0])}, which are lists; give each image the "
      'names or numbers of its classes, in a CSV file with "|" between them.'
    )


def in_columns(columns: Sequence[Iterable], form: str) -> str:
  """Advice on columns with a 0 or a 1 for each class; "" if they hold anything else.

  Args:
    columns: the values of each column.
    form: how one column holds the names of several classes.
  """
  cells = itertools.chain(*columns)
  if len(columns) < 2 or not all(str(cell).lower() in _CELLS for cell in cells):
    return ""
  return (
    "are these columns with a 0 or a 1 for each class (multi-hot)? Write one column called "
    f'"label" instead, with the names of each image\'s classes, {form}; or name a column by '
    "label_key to learn only it, with the classes 0 and 1"
  )
