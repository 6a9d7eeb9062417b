"""The parts of a report: sections with tables and pictures, without any HTML."""

import base64
import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from markupsafe import Markup


@dataclasses.dataclass(frozen=True)
class TableCell:
  """A cell of a table.

  Attributes:
    text: what is shown.
    value: the exact number behind it; None: it is no number.
    share: colours the cell, 0 to 1; None: it has no colour.
  """

  text: str
  value: float | int | None = None
  share: float | None = None


@dataclasses.dataclass(frozen=True)
class Table:
  """A table.

  Attributes:
    caption: what it holds.
    head: of each column, beginning with that of the rows' names.
    rows: (name, cells) each; a cell may be a text.
    folded: whether the reader opens it with a click.
  """

  caption: str
  head: Sequence[str]
  rows: Sequence[tuple[str, Sequence[TableCell | str]]]
  folded: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
  """A picture.

  Attributes:
    data: the file.
    kind: "svg+xml" or "png".
    alt: what is to be seen, for readers who do not see it.
    caption: the text below it.
    small: whether several stand side by side.
  """

  data: bytes
  kind: str
  alt: str
  caption: str
  small: bool = False

  @property
  def source(self) -> Markup:
    """The file inside of its address; base64 needs no escapes."""
    return Markup(f"data:image/{self.kind};base64,{base64.b64encode(self.data).decode()}")


@dataclasses.dataclass(frozen=True)
class Section:
  """A section; what is inside is shown in the order of the attributes."""

  title: str
  words: Sequence[str] = ()
  tables: Sequence[Table] = ()
  pictures: Sequence[Picture] = ()
  sections: Sequence["Section"] = ()

  @property
  def empty(self) -> bool:
    """Whether there is nothing below the title."""
    parts = (self.words, self.pictures, filled_tables(self.tables), filled(self.sections))
    return not any(parts)


def filled(sections: Sequence[Section]) -> list[Section]:
  """The sections that hold something, and in them the parts that do."""
  return [
    dataclasses.replace(one, tables=filled_tables(one.tables), sections=filled(one.sections))
    for one in sections
    if not one.empty
  ]


def filled_tables(tables: Sequence[Table]) -> list[Table]:
  """The tables that have rows."""
  return [table for table in tables if table.rows]


def bounded(sections: Sequence[Section], most: int) -> tuple[list[Section], int]:
  """The sections with as many of their first pictures as `most` bytes hold.

  Returns:
    The sections, and the number of pictures that were left out.
  """
  sizes = list(itertools.accumulate(4 * len(one.data) // 3 for one in pictures(sections)))
  room = sum(size <= most for size in sizes)
  kept = set(map(id, list(pictures(sections))[:room]))
  return [_with_only(one, kept) for one in sections], len(sizes) - room


def pictures(sections: Sequence[Section]) -> Iterator[Picture]:
  """All pictures, in order."""
  for one in sections:
    yield from one.pictures
    yield from pictures(one.sections)


def _with_only(section, kept):
  return dataclasses.replace(
    section,
    pictures=[one for one in section.pictures if id(one) in kept],
    sections=[_with_only(one, kept) for one in section.sections],
  )
