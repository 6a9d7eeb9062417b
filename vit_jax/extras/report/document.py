"""The parts of a report, and the page of HTML that they become; it asks nobody for anything."""

import base64
import dataclasses
import functools
from collections.abc import Sequence

import jinja2
from markupsafe import Markup

from vit_jax.process.text import one_line

TEMPLATE = "page.html.jinja"


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


def count(number: int) -> TableCell:
  """A cell with a number of things."""
  return TableCell(f"{number:,}", int(number))


def percent(value: float) -> TableCell:
  """A cell with a share in percent, without a colour."""
  return TableCell(f"{value:.1%}", float(value))


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
  pictures: Sequence[Picture] = ()
  tables: Sequence[Table] = ()
  sections: Sequence["Section"] = ()


def filled(sections: Sequence[Section]) -> list[Section]:
  """The sections that hold something, and in them the parts that do."""
  kept = [
    dataclasses.replace(
      section,
      tables=[table for table in section.tables if table.rows],
      sections=filled(section.sections),
    )
    for section in sections
  ]
  return [part for part in kept if part.words or part.pictures or part.tables or part.sections]


def html(title: str, sections: Sequence[Section]) -> str:
  """The page; every text in it is escaped, and its unprintable characters too."""
  return template().render(title=title, sections=filled(sections))


@functools.cache
def template() -> jinja2.Template:
  """The template of all reports, in this package."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader("vit_jax.extras.report", ""),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    finalize=printable,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.get_template(TEMPLATE)


def printable(value):
  """A text without unprintable characters; parts of the page itself stay as they are."""
  return one_line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
