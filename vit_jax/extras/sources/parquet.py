"""Parquet files with an image and its labels in each row, as Hugging Face and others write them."""

import bisect
import collections
import concurrent.futures
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges
from vit_jax.data.sources import table
from vit_jax.data.sources.base import Block, Example, SourceError
from vit_jax.extras.sources import arrow
from vit_jax.storage import files
from vit_jax.storage.base import FileVersion, UnreachableError
from vit_jax.storage.paths import Path, is_url, path_of, within

_SLOW = 2**26  # bytes of a row group, which is read for each image of it
_KEPT, _GROUPS = 2**28, 64  # bytes and number of row groups that are kept for the next images


class Parquet(table.Table):
  """The rows of a file, or of all *.parquet files in a folder and below it, sorted by their names.

  An image is read with the row group that holds it; the last groups that were read are kept. If the
  names of the files or their folders tell several splits, one must be named. If they tell none, a
  column "split" does, and all rows are taken without one.

  Args:
    path: the file or folder.
    split: a word in the names of the files, or a value of the column "split", and a part: "train",
      "train[:90%]", "[:90%]", "".
    image_key: the column of the images: bytes, paths from the file's folder, or {bytes, path}.
    label_key: the column of the labels: names or numbers, or lists of them; "": no labels.

  Raises:
    SourceError: there is no such file, split or column, or it is of another type.
    BadImage: from an item: the row has no image.
    ChangedError: from an item: the file was changed or removed.
    OSError: from an item: the file cannot be read.
  """

  form = "parquet:PATH"

  def __init__(
    self,
    path: str,
    *,
    split: str = "",
    image_key: str = Dataset().image_key,
    label_key: str = Dataset().label_key,
  ):
    root = path_of(path).absolute()
    name, cut = table.divided(split)
    below = _below(root)
    column = _split_column(path, root, below)
    below = below if column else table.of_split(path, below, name)
    self._files, self.distant = _opened(root, below), byte_ranges.distant(root)
    if not any(map(len, self._files)):
      raise SourceError(f'The files of "parquet:{root}" have no rows; give others.')
    schema = _schema(self._files)
    self._image, label = arrow.columns(str(root), schema, image_key, label_key)
    self.notes = arrow.notes(str(root), self._image, label, {*schema.names} - {column})
    self.notes += _notes(self._files, self._image)
    keys = np.concatenate([file.keys() for file in self._files])
    chosen = np.arange(len(keys))
    if column:
      chosen = arrow.of_split(str(root), column, self._values(column), name, self.notes)
    texts = []
    if arrow.is_text(schema.field(self._image).type):
      texts = self._values(self._image).take(chosen).to_pylist()
      arrow.check_paths(str(root), self._image, texts)
      self.notes += table.outside(str(root), filter(None, texts))
    values = self._values(label).take(chosen).chunks if label else ()
    labels = arrow.labels(str(root), schema, label, values, len(chosen))
    super().__init__("parquet", keys[chosen], labels, cut)
    texts = texts and [texts[row] for row in self.rows]
    self.rows = chosen[self.rows]
    self._ends = list(itertools.accumulate(map(len, self._files)))
    self._kept, self._lock = collections.OrderedDict(), threading.Lock()
    largest = max(file.largest_group(self._image) for file in self._files)
    self._reading = threading.BoundedSemaphore(min(max(_KEPT // max(largest, 1), 1), _GROUPS))
    self._stamps = self._pinned(str(root), texts)
    self.distant |= bool(self._stamps)

  def _pinned(self, root: str, texts: list[str | None]) -> byte_ranges.FileVersions | None:
    """The stamps of the image files that the rows name; None: none is in a bucket."""
    if not texts or not (self.distant or any(is_url(text) for text in texts if text)):
      return None
    folders = [self._place(index)[0].path.parent for index in range(len(self))]
    paths = [within(folder, text or "") for folder, text in zip(folders, texts, strict=True)]
    stamps, missing = byte_ranges.looked_up(paths)
    missing = [number for number in missing if texts[number]]
    if missing:
      raise SourceError(
        f'{len(missing):,} of the images that "{root}" names do not exist, the first is '
        f'"{paths[missing[0]]}".'
      )
    return byte_ranges.FileVersions(stamps)

  def __getitem__(self, index: int) -> Example:
    file, row = self._place(index)
    number = bisect.bisect_right(file.ends, row)
    group = self._group(file, number).result()
    value = group[row - (file.ends[number - 1] if number else 0)].as_py()
    name = self.name(index)
    stamp = self._stamps and self._stamps[index]
    return Example(arrow.image(value, file.path.parent, name, stamp), self.labels(index), name)

  def name(self, index: int) -> str:
    """The path of the Parquet file, and the row in it."""
    file, row = self._place(index)
    return f"{file.path} row {row}"

  def blocks(self) -> Iterator[Block]:
    """The rows of each file."""
    ends = np.searchsorted(self.rows, self._ends).tolist()
    for file, begin, end, last in zip(self._files, [0, *ends], ends, self._ends, strict=False):
      rows = self.rows[begin:end] - (last - len(file))
      yield Block(str(files.real(file.path)), rows, np.arange(begin, end))

  def _values(self, column: str):
    """The values of all rows in a column."""
    return _values(self._files, column)

  def _place(self, index: int) -> tuple["_File", int]:
    row = int(self.rows[index])
    file = self._files[number := bisect.bisect_right(self._ends, row)]
    return file, row - self._ends[number] + len(file)

  def _group(self, file: "_File", number: int) -> concurrent.futures.Future:
    """The images of a row group; reads it unless it is kept, or another thread reads it."""
    key = file.below, number
    with self._lock:
      if group := self._kept.get(key):
        self._kept.move_to_end(key)
        return group
      group = self._kept[key] = concurrent.futures.Future()
    try:
      with self._reading:
        group.set_result(file.group(number, self._image))
    except BaseException as error:
      group.set_exception(error)
    with self._lock:
      if group.exception():
        self._kept.pop(key, None)
      while len(self._kept) > _GROUPS or sum(map(_kept_bytes, self._kept.values())) > _KEPT:
        self._kept.popitem(last=False)
    return group

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The splits in the names of the files, or in the column "split"."""
    root = path_of(argument).absolute()
    below = _below(root)
    if not (column := _split_column(argument, root, below)):
      return table.parts_of(argument, below)
    values = _values(_opened(root, below), column)
    return {value.lower(): (argument, value) for value in arrow.splits(values)}

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether it is called like such a file, or is a folder with one in it or in its data/."""
    folders = (path, path / "data")
    inside = any(files.matching(folder, "*.parquet") for folder in folders)
    return inside or str(path).endswith(".parquet")


def _below(root: Path) -> list[str]:
  """The paths of the files within a folder, sorted; "" if the root is a file."""
  if not files.is_folder(root):
    return [""]
  below = sorted(path for path in files.files_below(root) if path.endswith(".parquet"))
  if not below:
    raise SourceError(f'"{root}" has no *.parquet files; give a folder that has some, or a file.')
  return below


def _split_column(path: str, root: Path, below: list[str]) -> str:
  """The column that tells splits; "": there is none, or the names of the files tell them."""
  if table.parts_of(path, below):
    return ""
  return arrow.split_column(_opened(root, below[:1])[0].schema)


def _opened(root: Path, below: list[str]) -> "list[_File]":
  paths = [root / file for file in below]
  stamps, missing = byte_ranges.stamps_of(paths)
  if missing:
    raise SourceError(f'"{paths[missing[0]]}" cannot be read as a Parquet file: it does not exist.')
  opened = lambda at: _File(*at)
  return files.at_once(root, opened, zip(paths, below, stamps, strict=True))


def _values(parts: "list[_File]", column: str):
  """The values of all rows of files in a column."""
  found = [file.chunks(column) for file in parts]
  return arrow.joined(itertools.chain(*found))


def _kept_bytes(group: concurrent.futures.Future) -> int:
  """The size of a row group that is kept; 0 while it is read."""
  return group.result().nbytes if group.done() and not group.exception() else 0


class _File:
  """One file, whose metadata is in memory.

  Attributes:
    path, below: its path, and that within the folder which is read.
    schema: of pyarrow.
    ends: the number of rows up to the end of each row group.
  """

  def __init__(self, path: Path, below: str, stamp: FileVersion):
    from pyarrow import parquet  # imported late, because other sources do not need it

    self.path, self.below, self._stamp = path, below, stamp
    try:
      stream = byte_ranges.File(path, stamp)  # it refuses what is not a file, such as a FIFO
      opened = parquet.ParquetFile(stream)
      self._metadata, self.schema = opened.metadata, opened.schema_arrow
      begin = stamp.size - 8 - self._metadata.serialized_size
      self._digest = hashlib.sha256(files.part(path, stamp, begin, stamp.size)).hexdigest()[:16]
    except UnreachableError:
      raise
    except (OSError, ValueError) as error:
      raise SourceError(f'"{path}" cannot be read as a Parquet file: {error}.') from error
    groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
    self.ends = list(itertools.accumulate(group.num_rows for group in groups))

  def __len__(self) -> int:
    return self._metadata.num_rows

  def keys(self) -> np.ndarray:
    """What tells the rows from all others: the metadata hold the places and sizes of all values."""
    name = f"{self.below} {self._digest}"
    return np.array([os.fsencode(f"{name} {row}") for row in range(len(self))], bytes)

  def chunks(self, column: str) -> list:
    """All values of a column, as arrays."""
    return self._opened().read([column], use_threads=False).column(0).chunks

  def group(self, number: int, column: str):
    """The values of a column in a row group."""
    return self._opened().read_row_group(number, [column], use_threads=False).column(0)

  def largest_group(self, column: str) -> int:
    """The bytes of a column in the largest row group."""
    groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
    return max((_bytes_of(group, column) for group in groups), default=0)

  def _opened(self):
    """The file opened anew, because readers cannot be shared by threads."""
    from pyarrow import parquet

    opened = byte_ranges.for_library(self.path, self._stamp)
    return parquet.ParquetFile(opened, metadata=self._metadata)


def _schema(parts: list[_File]):
  """The columns of all files, which must have the same types."""
  schema = parts[0].schema
  for part in parts:
    if not part.schema.equals(schema):
      raise SourceError(
        f'"{part.path}" has other columns than "{parts[0].path}", or of other types; remove it, or '
        "write it again."
      )
  return schema


def _notes(parts: list[_File], image: str) -> list[str]:
  notes, largest = [], max(parts, key=lambda part: part.largest_group(image))
  if (size := largest.largest_group(image)) > _SLOW:
    notes.append(
      f'"{largest.path}" has row groups with up to {size / 1e6:,.0f} MB of images, and a whole '
      "group is read for an image, which is slow: write it with about 10 rows in a group."
    )
  if empty := [part for part in parts if not len(part)]:
    notes.append(f'{len(empty)} files have no rows ("{empty[0].path}").')
  return notes


def _bytes_of(group, column: str) -> int:
  leaves = map(group.column, range(group.num_columns))
  return sum(
    leaf.total_uncompressed_size
    for leaf in leaves
    if leaf.path_in_schema.partition(".")[0] == column
  )
