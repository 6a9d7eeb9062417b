"""Text for one line of a terminal, for CSV and for JSON, whatever characters its values contain.

Rows of CSV are text and numbers to a spreadsheet, never formulas. JSON has no NaN and no
infinities: they become the strings nan, inf and -inf.
"""

import csv
import io
import json
import math
import re
import shlex
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

MAX_SHOWN = 200  # characters of a value
# Characters kept of a longer message.
BEGINNING = 2_000
ENDING = 1_000


def one_line(text: str) -> str:
  """The text with line breaks and other unprintable characters written as escapes.

  If the text has more than 3,000 characters, its middle is left out.
  """
  if len(text) > BEGINNING + ENDING:
    text = f"{text[:BEGINNING]} ... {text[-ENDING:]}"
  return printable(text)


def printable(text: str, kept: str = "") -> str:
  """The text with unprintable characters, except those in `kept`, written as escapes.

  These are control characters, such as ESC, and marks that turn the direction of text.
  """
  if text.isprintable():
    return text
  return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)


def quoted(value) -> str:
  r"""A value as a word of a command for a shell, on one line: bash reads $'\n' as a line break."""
  text = str(value)
  if text.isprintable():
    return shlex.quote(text)
  escaped = text.replace("\\", r"\\").replace("'", r"\'")
  return f"$'{printable(escaped)}'"


def command(words: Iterable) -> str:
  """A command for a shell, on one line."""
  return " ".join(map(quoted, words))


def shown(value) -> str:
  """A value for a message, shortened."""
  return shortened(repr(value))


def is_regex(pattern) -> bool:
  """Whether this is a text that compiles as a regex."""
  try:
    return isinstance(pattern, str) and bool(re.compile(pattern))
  except re.error:
    return False


def shortened(text: str) -> str:
  """The beginning of a text for a message."""
  if len(text) <= MAX_SHOWN:
    return text
  return f"{text[:MAX_SHOWN]}..."


def nfc(names: Iterable[str]) -> tuple[str, ...]:
  """Names of classes in the form that is compared: a letter with an accent is one character (NFC).

  A Mac writes it as two (NFD), so that equal names would differ.
  """
  return tuple(unicodedata.normalize("NFC", name) for name in names)


def first_difference(some: Sequence[str], others: Sequence[str], whose: str) -> str:
  """Describes the first difference between two lists of class names."""
  for i, (a, b) in enumerate(zip(some, others, strict=False)):
    if a != b:
      return f"class {i} is {a!r} there and {b!r} in {whose}{unseen(a, b)}"
  return f"the first {min(len(some), len(others))} are equal"


def unseen(a: str, b: str) -> str:
  """The first characters that differ, in parentheses, if two names may look alike; else ""."""
  pairs = [(x, y) for x, y in zip(a, b, strict=False) if x != y]
  if len(a) != len(b) or any((x + y).isascii() for x, y in pairs):
    return ""
  codes = [f"U+{ord(x):04X} {unicodedata.name(x, '')}".rstrip() for x in pairs[0]]
  return f" ({codes[0]} and {codes[1]})"


def listed(names: Sequence[str], most: int = 5) -> str:
  """Names in quotes, the first ones of many: "'a', 'b' and 7 more"."""
  text = ", ".join(map(repr, names[:most]))
  if len(names) <= most:
    return text
  return f"{text} and {len(names) - most:,} more"


def duration(seconds: float) -> str:
  """A time in words, such as "40 s", "12 min", "3.4 h" or "2.1 days"."""
  for most, size, form in ((60, 1, ",.0f} s"), (6000, 60, ",.0f} min"), (172_800, 3600, ".3g} h")):
    if seconds < most:
      return f"{{:{form}".format(seconds / size)
  return f"{seconds / 86_400:,.1f} days"


def rounded(number: float) -> str:
  """A number that is not negative: whole from 10 on, below with two digits, such as "0.17"."""
  if number >= 10:
    return f"{number:,.0f}"
  return f"{number:.1f}" if number >= 1 else f"{number:.2g}"


def h_mm_ss(seconds: float) -> str:
  """A time as h:mm:ss."""
  minutes, seconds = divmod(round(seconds), 60)
  return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


def cells(
  rows: Iterable[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]
) -> list[list[str]]:
  """The cells of a table, its headings first; a value of None is empty.

  Args:
    rows: values by key.
    columns: {key: (heading, format)}.
  """
  table = [[heading for heading, _ in columns.values()]]
  for row in rows:
    table.append([_cell(row[key], form) for key, (_, form) in columns.items()])
  return table


def _cell(value, form: str) -> str:
  if value is None:
    return ""
  return format(value, form)


def aligned(rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
  """The rows as lines whose columns are two spaces apart.

  Args:
    rows: the cells of each row, each of which becomes one line; a row may have fewer than others.
    left: indices of the columns to align to the left; the others are aligned to the right.
  """
  count = max(map(len, rows), default=0)
  filled = [[*map(one_line, row), *[""] * (count - len(row))] for row in rows]
  widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
  lines = []
  for row in filled:
    padded = []
    for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
      if column in left:
        padded.append(cell.ljust(width))
      else:
        padded.append(cell.rjust(width))
    lines.append("  ".join(padded).rstrip())
  return "\n".join(lines)


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
  """A table in Markdown, its head first; the cells are Markdown too."""
  head, *rest = rows
  return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])


_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-](?:inf|nan)|[+-]"
_FORMULA = re.compile(rf"'*(?!(?:{_NUMBER})\Z)[=+\-@\t\r\n＝＋－＠].*", re.DOTALL)


def csv_line(row: Iterable) -> str:
  r"""A row of CSV, ending with "\n".

  Python quotes only the line breaks that are in `lineterminator`. A reader takes "\r" for the end
  of a row too, so a cell with "\r" needs quotes.
  """
  stream = io.StringIO(newline="")
  csv.writer(stream, lineterminator="\r\n").writerow(map(_harmless, row))
  return stream.getvalue().removesuffix("\r\n") + "\n"


def csv_rows(text: str) -> Iterator[list[str]]:
  """The rows that `csv_line` wrote.

  Raises:
    csv.Error: they cannot be read.
  """
  for row in csv.reader(io.StringIO(text, newline=""), strict=True):
    yield [csv_plain(cell) for cell in row]


def csv_plain(cell: str) -> str:
  """The text of a cell before `csv_line` wrote it."""
  if cell.startswith("'") and _FORMULA.fullmatch(cell):
    return cell[1:]
  return cell


def _harmless(value):
  """The value, with an apostrophe before a text that may be a formula."""
  if isinstance(value, str) and _FORMULA.fullmatch(value):
    return f"'{value}"
  return value


STRINGS = ("nan", "inf", "-inf")


def json_text(value: Any) -> str:
  """The text of dicts, lists, strings, numbers and None."""
  return json.dumps(finite(value), indent=2, allow_nan=False)


def finite(value: Any) -> Any:
  """The value with strings in place of floats that are not finite."""
  if isinstance(value, dict):
    return {key: finite(element) for key, element in value.items()}
  if isinstance(value, (list, tuple)):
    return [finite(element) for element in value]
  if isinstance(value, float) and not math.isfinite(value):
    return str(value)
  return value


def with_numbers(values: dict) -> dict:
  """The values of a JSON object, with floats in place of the strings of `finite`."""
  numbers = {key: float(value) for key, value in values.items() if value in STRINGS}
  return values | numbers
