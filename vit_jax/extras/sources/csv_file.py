"""A CSV file with the path of an image and its labels in each row."""

import csv
import io
import itertools
import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges, image_files, sources
from vit_jax.data.sources import several, table
from vit_jax.data.sources.base import Block, ColumnError, SourceError
from vit_jax.extras.sources import splits
from vit_jax.process.text import shown
from vit_jax.storage import files
from vit_jax.storage.base import FileVersion
from vit_jax.storage.paths import Path, path_of, within

_IMAGES = ("path", "file", "file_name", "filename", "filepath", "image_path")
_SEVERAL = "|"
_SEPARATORS = ",;\t"
_HEAD = 4096  # characters; a zero among them shows that the file is not text


class Csv(table.Files):
  """The images in a text table, whose columns are separated by commas, semicolons or tabs.

  Spaces around a cell are ignored. Paths are relative to the file's folder. They may also be
  absolute, URLs, or lead out of the folder: a note counts those. The files are only ever decoded as
  images.

  The first row is a header if it names no image, and either has a usual name for the column of
  images, or the next row names an image. Without a header, the columns are path and label. If any
  label contains "|", images of all splits have any number of labels, separated by it. Equal rows
  count once.

  Args:
    path: the file.
    split: a value of the column of splits, if there is one, and a range: "train[:90%]", "[:90%]",
      "". The column is found by `splits.column_of`.
    image_key: the column of the paths.
    label_key: the column of the labels; "": no labels.

  Raises:
    SourceError: the file is not text or cannot be read, a row or a column is wrong, or an image
      does not exist.
  """

  form = "csv:FILE"

  def __init__(
    self,
    path: str,
    *,
    split: str = "",
    image_key: str = Dataset().image_key,
    label_key: str = Dataset().label_key,
  ):
    file = path_of(path).absolute()
    self._folder = file.parent
    self.notes = []
    name, cut = splits.divided(split)
    rows, column, values = _rows(file, image_key, label_key, self.notes)
    lists = any(_SEVERAL in row.label for row in rows)
    if name and not column:
      raise SourceError(f'"{file}" has no split {name!r}: it has no column "{splits.SPLIT}".')
    if column:
      chosen = splits.rows_of_split(str(file), column, values, name, self.notes)
      rows = [rows[row] for row in chosen]
    rows = _once(file, _with_slashes(file.parent, rows), self.notes)
    stamps = _stamps(file, rows, self.notes)
    paths = np.array([os.fsencode(row.path) for row in rows])
    labels = table.Labels.none(len(rows))
    if label_key:
      labels = _labels(file, rows, self.notes, lists=lists)
    super().__init__("csv", paths, labels, cut)
    self._paths = paths[self.rows]
    self._stamps = byte_ranges.FileVersions(stamps)
    self.distant = any(stamps)

  def _path(self, index: int) -> Path:
    return within(self._folder, os.fsdecode(bytes(self._paths[index])))

  def blocks(self) -> Iterator[Block]:
    """The files, grouped by the real folders that hold them, as in a source of a folder."""
    return table.placed(self._folder, self._paths, range(len(self)))

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The values in the column of splits."""
    file = path_of(argument).absolute()
    names, lines = _with_header(file)
    column = splits.column_of(str(file), _few_values(names, lines))
    if not column:
      return {}
    return splits.parts_in(argument, column, {*_cells(column, names, lines)})

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether it has the suffix of a table."""
    return str(path).lower().endswith((".csv", ".tsv"))


class _Row(NamedTuple):
  """A row of the table; `line` is its number in the file."""

  line: int
  path: str
  label: str


def _rows(
  file: Path, image_key: str, label_key: str, notes: list[str]
) -> tuple[list[_Row], str, list[str]]:
  """All rows, the column of splits or "", and the split of each row; arguments as for `Csv`."""
  header, lines = _with_header(file)
  first = lines[0][1]
  names = header or ["path", "label"]
  if not header and not label_key and len(first) == 1:
    names = ["path"]
  if not header:
    _check_cells(file, lines, len(names))
  few = _few_values(names, lines)
  split = splits.column_of(str(file), few)
  image = _image_column(file, names, first, image_key)
  label = 0
  if label_key:
    others = [i for i, name in enumerate(names) if i != image and not (split and name == split)]
    label = _label_column(file, names, others, label_key, lines)
  read = names[image], label_key and names[label], split
  usual = read[0] == "path" and read[1] in ("", "label") and split.lower() in ("", splits.SPLIT)
  if header and not usual:
    notes.append(table.columns_read(str(file), *read))
  if not split:
    notes += splits.on_unread(str(file), [name for name in names if name not in read], few)
  rows = [_Row(number, cells[image], label_key and cells[label]) for number, cells in lines]
  for row in rows:
    if not row.path:
      raise _wrong(file, f"has no path in line {row.line}", header)
    _check_encoding(file, row, "label", row.label)
  return rows, split, [*_cells(split, names, lines)] if split else []


def _check_encoding(file: Path, row: _Row, what: str, text: str) -> None:
  if files.as_written(text) != text:  # the file has another encoding
    raise SourceError(
      f'"{file}" has a {what} that is not UTF-8 in line {row.line}; save the table as UTF-8.'
    )


def _few_values(names: list[str], lines: list[tuple[int, list[str]]]) -> dict[str, tuple[str, ...]]:
  """`splits.few_values` of the columns that have a name."""
  return splits.few_values({name: _cells(name, names, lines) for name in filter(None, names)})


def _cells(column: str, names: list[str], lines: list[tuple[int, list[str]]]) -> Iterator[str]:
  """The cells of the first column of this name."""
  place = names.index(column)
  return (cells[place] for _, cells in lines)


def _with_header(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
  """The header, or [], and all other rows with the numbers of their lines."""
  lines = _read(file)
  header = _header(file.parent, [cells for _, cells in lines[:2]])
  if header:
    lines = lines[1:]
  if not lines:
    raise _wrong(file, "names no images")
  if header:
    _check_cells(file, lines, len(header), header)
  return header, lines


def _check_cells(file: Path, lines, columns: int, header: list[str] = ()) -> None:
  for number, cells in lines:
    if len(cells) != columns:
      raise _wrong(file, f"has {shown(cells)} in line {number}", header)


def _read(file: Path) -> list[tuple[int, list[str]]]:
  """The rows that are not empty, with the numbers of their lines."""
  options = dict(encoding="utf-8-sig", errors="surrogateescape", newline="")
  try:
    with files.open_text(file, **options) as stream:
      head = stream.read(_HEAD)
      if "\0" in head:
        raise SourceError(
          f'"{file}" is not text in UTF-8, so not a CSV file; save a table as UTF-8.'
          + sources.advice_on(str(file))
        )
      stream.seek(0)
      reader = csv.reader(stream, delimiter=_separator(head), skipinitialspace=True)
      return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if row]
  except (OSError, csv.Error) as error:
    raise SourceError(f'"{file}" cannot be read as a CSV file: {error}.') from error


def _separator(head: str) -> str:
  """The separator with which a cell is an image's path, and all rows have as many cells."""
  end = len(head)
  if end == _HEAD:  # the last line may be incomplete
    end = max(map(head.rfind, "\r\n")) + 1

  def fitness(mark: str) -> tuple[bool, bool]:
    lines = io.StringIO(head[:end] or head, newline="")
    rows = [row for row in csv.reader(lines, delimiter=mark, skipinitialspace=True) if row]
    cells = (cell for row in rows for cell in row if not {*cell} & {*_SEPARATORS})
    names_image = any(map(_has_suffix, cells))
    lengths = list(map(len, rows))
    return names_image, len(set(lengths)) == 1 < max(lengths)

  return max(_SEPARATORS, key=fitness)


def _has_suffix(cell: str) -> bool:
  return os.path.splitext(cell.strip())[1].lower() in image_files.SUFFIXES


def _header(folder: Path, rows: list[list[str]]) -> list[str]:
  """The names of the columns; [] if the first row is not a header."""
  if not rows or any(_is_image(folder, cell) for cell in rows[0]):
    return []
  usual = any(cell.lower() in _IMAGES for cell in rows[0])
  if usual or any(_is_image(folder, cell) for cell in rows[-1]):
    return rows[0]
  return []


def _is_image(folder: Path, cell: str) -> bool:
  return bool(cell) and (_has_suffix(cell) or byte_ranges.is_file(within(folder, cell)))


def _image_column(file: Path, names: list[str], cells: list[str], image_key: str) -> int:
  setting = f'"{file}", image_key'
  if name := table.column(image_key, Dataset().image_key, _IMAGES, names, setting):
    return names.index(name)
  # The first row is a header because the next row names an image.
  return next(i for i, cell in enumerate(cells) if _is_image(file.parent, cell))


def _label_column(
  file: Path, names: list[str], others: list[int], label_key: str, lines: list
) -> int:
  setting = f'"{file}", label_key'
  if name := table.column(label_key, Dataset().label_key, table.LABELS, names, setting):
    return names.index(name)
  if len(others) != 1:
    columns = [[cells[place] for _, cells in lines] for place in others]
    advice = several.in_columns(columns, f'"{_SEVERAL}" between them')
    advice = advice or 'call the one with the labels "label", or name it by label_key'
    raise ColumnError(f'"{file}" has the columns {shown(names)}; {advice}.')
  return others[0]


def _with_slashes(folder: Path, rows: list[_Row]) -> list[_Row]:
  """The rows; with slashes for backslashes, as Windows writes paths, if more images exist so."""
  if not any("\\" in row.path for row in rows):
    return rows
  slashed = [row._replace(path=row.path.replace("\\", "/")) for row in rows]

  def missing(rows: list[_Row]) -> int:
    return len(byte_ranges.looked_up([within(folder, row.path) for row in rows])[1])

  return min(rows, slashed, key=missing)


def _once(file: Path, rows: list[_Row], notes: list[str]) -> list[_Row]:
  """The rows without those that repeat a path and its label."""
  first = {}
  for row in rows:
    other = first.setdefault(os.path.normpath(row.path), row)
    if other.label != row.label:
      raise SourceError(
        f'"{file}" has "{row.path}" twice: as {other.label!r} in line {other.line}, as '
        f"{row.label!r} in line {row.line}; remove one, or write both labels in one row with "
        f'"{_SEVERAL}" between.'
      )
  if repeated := len(rows) - len(first):
    notes.append(f"{repeated:,} rows of {str(file)!r} repeat others, and count once.")
  return list(first.values())


def _stamps(file: Path, rows: list[_Row], notes: list[str]) -> list[FileVersion | None]:
  """The stamps of all images, which must exist."""
  stamps, missing = byte_ranges.looked_up([within(file.parent, row.path) for row in rows])
  if missing:
    for row in map(rows.__getitem__, missing):
      _check_encoding(file, row, "path", row.path)
    first = rows[missing[0]]
    raise SourceError(
      f'"{file}" names {len(missing):,} of {len(rows):,} images that do not exist, the first in '
      f'line {first.line}: "{within(file.parent, first.path)}"; paths are relative to the '
      "folder of the table."
    )
  notes += table.outside(str(file), [row.path for row in rows])
  return stamps


def _labels(file: Path, rows: list[_Row], notes: list[str], *, lists: bool) -> table.Labels:
  """The labels of rows; `lists`: images have any number of labels."""
  names = [row.label for row in rows]
  counts = None
  if lists:
    divided = [[*filter(None, map(str.strip, name.split(_SEVERAL)))] for name in names]
    notes.append(f'Images of {str(file)!r} have any number of labels, separated by "{_SEVERAL}".')
    names = itertools.chain(*divided)
    counts = list(map(len, divided))
  elif "" in names:
    raise _wrong(file, f"has no label in line {rows[names.index('')].line}")
  with table.naming(str(file)):
    return table.Labels.of_names(names, counts)


def _wrong(file: Path, problem: str, header: list[str] = ()) -> SourceError:
  columns = ""
  if header:
    columns = f", in the columns {shown(header)}"
  return SourceError(
    f'"{file}" {problem}; each line must be the path of an image and its label{columns}.'
  )
