"""The images in a table with lines of path,label."""

import csv
import hashlib
import logging
import os
import pathlib
import re
from collections.abc import Iterable

from vit_jax.data import image_files
from vit_jax.data.sources import Example, Source, SourceError, foreign
from vit_jax.process.text import nfc, shown
from vit_jax.storage import files
from vit_jax.storage.paths import local_path

_HEADER = ["path", "label"]
_HEAD = 4096  # characters; text has no zero among them
_WHOLE = re.compile("-?[0-9]{1,18}")

_log = logging.getLogger(__name__)


class Listing(Source):
  """The images of a CSV file with two columns, the path of an image and its class.

  Paths are relative to the file's folder. The first row may be a header: path,label, or any other
  row, if its first cell is neither a file nor named like an image, but that of the second row is.
  The log reports such a header. Classes are the labels in the order of `ordered`.

  Raises:
    SourceError: the file is no text or cannot be read, a line does not have two columns, or an
      image does not exist.
  """

  def __init__(self, path: str):
    file = local_path(path).absolute()
    self._folder = file.parent
    rows = _rows(file)
    self.class_names = ordered(label for _, label in rows)
    numbers = {name: number for number, name in enumerate(self.class_names)}
    self._paths, self._labels = [path for path, _ in rows], [numbers[label] for _, label in rows]
    digest = hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:16]
    self.identity = f"csv {digest}"

  def __len__(self) -> int:
    return len(self._paths)

  def __getitem__(self, index: int) -> Example:
    path = self.name(index)
    image = files.read_bytes(path, most=image_files.MAX_BYTES)
    return Example(image, self.labels(index), path)

  def labels(self, index: int) -> tuple[int, ...]:
    """The class in the table."""
    return (self._labels[index],)

  def name(self, index: int) -> str:
    """The image's path."""
    return str(self._folder / self._paths[index])


def _rows(file: pathlib.Path) -> list[tuple[str, str]]:
  try:
    options = dict(encoding="utf-8-sig", errors="surrogateescape", newline="")
    with files.open_text(file, **options) as stream:
      if "\0" in stream.read(_HEAD):
        raise SourceError(
          f'"{file}" is not text in UTF-8, so not a CSV file.{foreign.advice(str(file))}'
        )
      stream.seek(0)
      reader = csv.reader(stream)
      lines = [(reader.line_num, row) for row in reader if row]
  except (OSError, csv.Error) as error:
    raise SourceError(f'"{file}" cannot be read as a CSV file: {error}.') from error
  for number, row in lines:
    if len(row) != 2 or not all(row):
      raise SourceError(
        f'"{file}" has {shown(row)} in line {number}; each line must be the path of an image and '
        "its label."
      )
  if _has_header(file, [row for _, row in lines[:2]]):
    del lines[0]
  if not lines:
    raise SourceError(
      f'"{file}" names no images; each line must be the path of an image and its label.'
    )
  _check_there(file, lines)
  return [(path, *nfc([label])) for _, (path, label) in lines]


def _check_there(file: pathlib.Path, lines: list[tuple[int, list[str]]]) -> None:
  missing = [line for line in lines if not os.path.exists(file.parent / line[1][0])]
  if missing:
    number, (path, _) = missing[0]
    raise SourceError(
      f'"{file}" names {len(missing):,} of {len(lines):,} images that do not exist, the first in '
      f'line {number}: "{file.parent / path}"; paths are relative to the folder of the table.'
    )


def _has_header(file: pathlib.Path, rows: list[list[str]]) -> bool:
  """Whether the first row is a header."""
  if rows[:1] == [_HEADER] or len(rows) < 2:
    return rows[:1] == [_HEADER]
  first, second = (
    os.path.splitext(path)[1].lower() in image_files.SUFFIXES or os.path.exists(file.parent / path)
    for path, _ in rows[:2]
  )
  if second and not first:
    _log.warning(
      'The first row of "%s", %r, is used as a header: no image has that name.', file, rows[0]
    )
  return second and not first


def ordered(names: Iterable[str]) -> tuple[str, ...]:
  """Different class names in ascending order: 2 before 10 if all are whole numbers, else as text.

  Folders keep the order of text, which other libraries give them too.
  """
  names = sorted(set(names))
  return tuple(sorted(names, key=int) if all(map(_WHOLE.fullmatch, names)) else names)
