"""The elements of a report, and the page of HTML made of them; the page needs no network."""

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
    text: shown to the reader.
    value: the exact number; None if the cell holds no number.
    share: 0 to 1, colours the cell; None for no colour.
  """

  text: str
  value: float | int | None = None
  share: float | None = None


def count(number: int) -> TableCell:
  """A cell with a number of things."""
  return TableCell(f"{number:,}", int(number))


def percent(value: float) -> TableCell:
  """A cell with a fraction in percent, without a colour."""
  return TableCell(f"{value:.1%}", float(value))


@dataclasses.dataclass(frozen=True)
class Table:
  """A table.

  Attributes:
    caption: the text above it.
    head: the heads of all columns; the first column holds the rows' names.
    rows: (name, cells) each; a cell may be a plain string.
    folded: whether the table stays closed until the reader clicks on it.
  """

  caption: str
  head: Sequence[str]
  rows: Sequence[tuple[str, Sequence[TableCell | str]]]
  folded: bool = False


@dataclasses.dataclass(frozen=True)
class Picture:
  """A picture.

  Attributes:
    data: the content of the file.
    kind: "svg+xml" or "png".
    alt: describes the picture to readers who do not see it.
    caption: the text below it.
    small: whether several fit side by side.
  """

  data: bytes
  kind: str
  alt: str
  caption: str
  small: bool = False

  @property
  def source(self) -> Markup:
    """The file as a data URL; base64 needs no escapes."""
    encoded = base64.b64encode(self.data).decode()
    return Markup(f"data:image/{self.kind};base64,{encoded}")


@dataclasses.dataclass(frozen=True)
class Section:
  """A section; its content is shown in the order of the attributes."""

  title: str
  words: Sequence[str] = ()
  pictures: Sequence[Picture] = ()
  tables: Sequence[Table] = ()
  sections: Sequence["Section"] = ()


def filled(sections: Sequence[Section]) -> list[Section]:
  """The sections without empty tables and empty sections."""
  kept = [
    dataclasses.replace(
      section,
      tables=[table for table in section.tables if table.rows],
      sections=filled(section.sections),
    )
    for section in sections
  ]
  return [each for each in kept if each.words or each.pictures or each.tables or each.sections]


def html(title: str, sections: Sequence[Section]) -> str:
  """The page; all text in it is escaped, unprintable characters included."""
  return template().render(title=title, sections=filled(sections))


@functools.cache
def template() -> jinja2.Template:
  """The template of all reports."""
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
  """Text without unprintable characters; markup and other values stay as they are."""
  if isinstance(value, str) and not hasattr(value, "__html__"):
    return one_line(value)
  return value
