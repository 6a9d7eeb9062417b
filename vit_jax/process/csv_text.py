"""Rows of CSV that a spreadsheet reads as text and numbers, never as formulas.

A spreadsheet runs a cell that begins with =, +, -, @ or a control character. Such a cell gets an
apostrophe before it, unless it is a number; `plain` removes it again.

Source: OWASP, "CSV Injection".
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-](?:inf|nan)|[+-]"
_FORMULA = re.compile(rf"'*(?!(?:{_NUMBER})\Z)[=+\-@\t\r\n＝＋－＠].*", re.DOTALL)


def line(row: Iterable) -> str:
  r"""A row of CSV, ending with "\n".

  Python quotes only the line breaks that are in `lineterminator`. A reader takes "\r" for the end
  of a row too, so a cell with "\r" needs quotes.
  """
  stream = io.StringIO(newline="")
  csv.writer(stream, lineterminator="\r\n").writerow(map(_harmless, row))
  return stream.getvalue().removesuffix("\r\n") + "\n"


def rows(text: str) -> Iterator[list[str]]:
  """The rows that `line` wrote.

  Raises:
    csv.Error: they cannot be read.
  """
  for row in csv.reader(io.StringIO(text, newline=""), strict=True):
    yield [plain(cell) for cell in row]


def plain(cell: str) -> str:
  """The text of a cell before `line` wrote it."""
  if cell.startswith("'") and _FORMULA.fullmatch(cell):
    return cell[1:]
  return cell


def _harmless(value):
  """The value, with an apostrophe before a text that may be a formula."""
  if isinstance(value, str) and _FORMULA.fullmatch(value):
    return f"'{value}"
  return value
