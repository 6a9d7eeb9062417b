"""The elements of a report, and the page of HTML made of them; the page needs no network."""

import base64
import dataclasses
import functools
from collections.abc import Sequence

import jinja2
from markupsafe import Markup, escape

from vit_jax.process import text

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
  """A cell with a fraction in percent, without a colour; the head of the column has the unit."""
  return TableCell(f"{100 * value:.1f}", float(value))


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
    kind: "svg+xml", "png" or "jpeg".
    alt: describes the picture to readers who do not see it.
    caption: the text below it.
    small: whether several fit side by side.
    mark: "right" or "wrong", of a prediction; "" of other pictures.
  """

  data: bytes
  kind: str
  alt: str
  caption: str
  small: bool = False
  mark: str = ""

  @property
  def source(self) -> Markup:
    """The file as a data URL; base64 needs no escapes."""
    encoded = base64.b64encode(self.data).decode()
    return Markup(f"data:image/{self.kind};base64,{encoded}")


@dataclasses.dataclass(frozen=True)
class Section:
  """A section; its content is shown in the order of the attributes.

  Attributes:
    title: its heading.
    words: paragraphs.
    commands: commands for a shell, shown in full.
    pictures, tables, sections: what follows.
    boxed: whether it has a frame.
  """

  title: str
  words: Sequence[str] = ()
  commands: Sequence[str] = ()
  pictures: Sequence[Picture] = ()
  tables: Sequence[Table] = ()
  sections: Sequence["Section"] = ()
  boxed: bool = False

  @property
  def shell(self) -> list[Markup]:
    """The commands as markup: escaped, but not shortened as other texts are."""
    return [escape(text.printable(command, kept="\n")) for command in self.commands]

  @property
  def is_empty(self) -> bool:
    """Whether there is nothing below its heading."""
    return not (self.words or self.commands or self.pictures or self.tables or self.sections)


@dataclasses.dataclass(frozen=True)
class Lead:
  """The first screen.

  Attributes:
    value: the result, in large letters, such as "98.3%"; "": there is none.
    whose: what the value is of, such as "of 360 images".
    words: more about the value.
    facts: (name, text) each.
    table: of several runs.
    predictions: some images with their predictions.
    note: about the predictions.
    chart: the progress of the training.
    notes: sentences that readers must not miss.
  """

  value: str = ""
  whose: str = ""
  words: str = ""
  facts: Sequence[tuple[str, str]] = ()
  table: Table | None = None
  predictions: Sequence[Picture] = ()
  note: str = ""
  chart: Picture | None = None
  notes: Sequence[str] = ()


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
  return [each for each in kept if not each.is_empty]


def html(title: str, lead: Lead, sections: Sequence[Section]) -> str:
  """The page; all text in it is escaped, unprintable characters included."""
  return template().render(title=title, lead=lead, sections=filled(sections))


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
    return text.one_line(value)
  return value
