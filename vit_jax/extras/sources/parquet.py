"""Parquet files with an image and its labels in each row, as Hugging Face and others write them."""

import bisect
import collections
import concurrent.futures
import functools
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator

import numpy as np

from vit_jax.config import Dataset
from vit_jax.data import byte_ranges, image_files
from vit_jax.data.sources import table
from vit_jax.data.sources.base import Block, Example, SourceError
from vit_jax.extras.sources import arrow, splits
from vit_jax.process.text import shown
from vit_jax.storage import files
from vit_jax.storage.base import FileVersion, raised_as
from vit_jax.storage.paths import Path, is_url, path_of, within

_SUFFIX = ".parquet"
_SLOW = 2**26  # bytes; larger row groups are slow, since each image needs its whole group
_KEPT = 2**28  # bytes of row groups that are kept in memory
_GROUPS = 64  # the most row groups that are kept in memory


class Parquet(table.Table):
  """The rows of a file, or of all *.parquet files in and below a folder, sorted by their names.

  Reading an image reads its whole row group; the latest groups are kept. If the names of the files
  or of their folders name several splits, the user must name one. If they name none, a column has
  the splits, if `splits.column_of` finds one; without a split, all rows are taken.

  Args:
    path: the file or folder.
    split: a word in the names of the files, or a value of the column of splits, and a range:
      "train", "train[:90%]", "[:90%]", "".
    image_key: the column of the images: bytes, paths from the file's folder, or {bytes, path}.
    label_key: the column of the labels: names or numbers, or lists of them; "": no labels.

  Raises:
    SourceError: there is no such file, split or column, or the column has another type.
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
    name, cut = splits.divided(split)
    below, hidden = _below(root)
    told = splits.in_names(path, below)
    unused = []
    if told:
      below, unused = splits.of_split(path, below, name)
    self._files = _opened(root, below)
    few = _few_values(self._files)
    column = "" if told else splits.column_of(str(root), few)
    if name and not told and not column:
      below, unused = splits.of_split(path, below, name)
      chosen = {*below}
      self._files = [file for file in self._files if file.below in chosen]
    self.distant = byte_ranges.distant(root)
    if not any(map(len, self._files)):
      raise SourceError(f'The files of "parquet:{root}" have no rows; give others.')
    schema = _schema(self._files)
    self._image, label = arrow.columns(
      str(root), schema, image_key, label_key, split=column, values=self._values
    )
    self.notes = arrow.notes(str(root), schema.names, (self._image, label, column), few)
    self.notes += [*hidden, *unused, *_notes(self._files, self._image)]
    keys = np.concatenate([file.keys() for file in self._files])
    chosen = np.arange(len(keys))
    if column:
      values = self._values(column).cast("string").to_pylist()
      chosen = splits.rows_of_split(str(root), column, values, name, self.notes)
    texts = self._texts(str(root), schema, chosen)
    chunks = ()
    if label:
      chunks = self._values(label).take(chosen).chunks
      _check_class_names(self._files, label)
    labels = arrow.labels(str(root), schema, label, chunks, len(chosen))
    kind = f"parquet {arrow.in_identity(schema, self._image)}".rstrip()
    super().__init__(kind, keys[chosen], labels, cut)
    if texts:
      texts = [texts[row] for row in self.rows]
    self.rows = chosen[self.rows]
    self._ends = list(itertools.accumulate(map(len, self._files)))
    self._kept = collections.OrderedDict()
    self._lock = threading.Lock()
    largest = max(file.largest_group(self._image) for file in self._files)
    self._reading = threading.BoundedSemaphore(min(max(_KEPT // max(largest, 1), 1), _GROUPS))
    self._stamps = self._pinned(str(root), texts)
    self.distant |= bool(self._stamps)

  def _texts(self, root: str, schema, rows: np.ndarray) -> list[str | None]:
    """The paths of image files in the column of images, checked; [] if the column has no text."""
    if not arrow.is_text(schema.field(self._image).type):
      return []
    texts = self._values(self._image).take(rows).to_pylist()
    arrow.check_paths(root, self._image, texts)
    self.notes += table.outside(root, filter(None, texts))
    return texts

  def _pinned(self, root: str, texts: list[str | None]) -> byte_ranges.FileVersions | None:
    """The stamps of the image files that the rows name; None if no file is in a bucket."""
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
    begin = file.ends[number - 1] if number else 0
    value = group[row - begin].as_py()
    name = self.name(index)
    stamp = self._stamps and self._stamps[index]
    return Example(arrow.image(value, file.path.parent, name, stamp), self.labels(index), name)

  def name(self, index: int) -> str:
    """The path of the Parquet file, and the row in it."""
    file, row = self._place(index)
    return f"{file.path} row {row}"

  def blocks(self) -> Iterator[Block]:
    """The rows of each file, and the image files that rows name."""
    cuts = [0, *np.searchsorted(self.rows, self._ends).tolist()]
    for number, file in enumerate(self._files):
      indices = np.arange(cuts[number], cuts[number + 1])
      rows = self.rows[indices] - (self._ends[number] - len(file))
      place = str(files.real(file.path))
      in_files = self._in_files[number]
      yield from arrow.blocks(place, rows, indices, folder=file.path.parent, in_files=in_files)

  @functools.cached_property
  def _in_files(self) -> list[tuple[np.ndarray, np.ndarray]]:
    """`arrow.paths` of each file."""
    first = self._files[0].path
    return files.at_once(first, lambda file: file.paths(self._image), self._files)

  def _values(self, column: str):
    """The values of all rows in a column."""
    return _values(self._files, column)

  def _place(self, index: int) -> tuple["_File", int]:
    """The file of an example, and its row in that file."""
    row = int(self.rows[index])
    number = bisect.bisect_right(self._ends, row)
    file = self._files[number]
    return file, row - self._ends[number] + len(file)

  def _group(self, file: "_File", number: int) -> concurrent.futures.Future:
    """The images of a row group; reads it unless it is kept, or another thread is reading it."""
    key = (file.below, number)
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
    """The splits in the names of the files, or in the column of splits."""
    root = path_of(argument).absolute()
    below, _ = _below(root)
    if splits.in_names(argument, below):
      return splits.parts_of(argument, below)
    opened = _opened(root, below)
    column = splits.column_of(str(root), _few_values(opened))
    if not column:
      return {}
    _schema(opened)
    values = _values(opened, column)
    return splits.parts_in(argument, column, values.cast("string").unique().to_pylist())

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether the path ends in .parquet, or is a folder with such a file in it or in its data/."""
    folders = (path, path / "data")
    return str(path).endswith(_SUFFIX) or table.holds(path, folders, f"*{_SUFFIX}", cls.form)


def _below(root: Path) -> tuple[list[str], list[str]]:
  """The paths of the files within a folder, sorted, "" if the root is a file; and notes on them."""
  if not files.is_folder(root):
    return [""], []
  below, notes = image_files.of_suffix(root, _SUFFIX)
  if not below:
    raise SourceError(f'"{root}" has no *.parquet files; give a folder that has some, or a file.')
  return below, notes


def _opened(root: Path, below: list[str]) -> "list[_File]":
  paths = [root / file for file in below]
  stamps, missing = byte_ranges.stamps_of(paths)
  if missing:
    raise SourceError(f'"{paths[missing[0]]}" cannot be read as a Parquet file: it does not exist.')

  def opened(path_below_stamp) -> _File:
    return _File(*path_below_stamp)

  return files.at_once(root, opened, zip(paths, below, stamps, strict=True))


def _values(opened: "list[_File]", column: str):
  """The values of all rows of files in a column."""
  found = [file.chunks(column) for file in opened]
  return arrow.joined(itertools.chain(*found))


def _few_values(opened: "list[_File]") -> dict[str, tuple[str, ...]]:
  """`arrow.few_values` of files with the columns of the first; others may not be of the split."""
  schema = opened[0].schema
  alike = [file for file in opened if file.schema.equals(schema)]

  def pieces(column: str) -> Iterator:
    return (file.group(number, column) for file in alike for number in range(len(file.ends)))

  return arrow.few_values(schema, pieces)


def _kept_bytes(group: concurrent.futures.Future) -> int:
  """The size of a row group; 0 while it is read, and if reading failed."""
  if group.done() and not group.exception():
    return group.result().nbytes
  return 0


class _File:
  """One file; its metadata is in memory.

  Attributes:
    path: the path.
    below: the path within the folder of the dataset.
    schema: the schema, of pyarrow.
    ends: the number of rows up to the end of each row group.
  """

  def __init__(self, path: Path, below: str, stamp: FileVersion):
    from pyarrow import parquet  # imported late, because other sources do not need it

    self.path = path
    self.below = below
    self._stamp = stamp
    words = lambda error: f'"{path}" cannot be read as a Parquet file: {error}.'
    with raised_as(SourceError, words, OSError, ValueError):
      stream = byte_ranges.File(path, stamp)  # refuses anything but a file, such as a FIFO
      opened = parquet.ParquetFile(stream)
      self._metadata = opened.metadata
      self.schema = opened.schema_arrow
      begin = stamp.size - 8 - self._metadata.serialized_size
      self._digest = hashlib.sha256(files.part(path, stamp, begin, stamp.size)).hexdigest()[:16]
    groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
    self.ends = list(itertools.accumulate(group.num_rows for group in groups))

  def __len__(self) -> int:
    return self._metadata.num_rows

  def keys(self) -> np.ndarray:
    """Unique keys of the rows: the digest is of the metadata, which has the sizes of all values."""
    name = f"{self.below} {self._digest}"
    return np.array([os.fsencode(f"{name} {row}") for row in range(len(self))], bytes)

  def chunks(self, column: str) -> list:
    """All values of a column, as arrays."""
    return self._opened().read([column], use_threads=False).column(0).chunks

  def group(self, number: int, column: str):
    """The values of a column in a row group."""
    return self._opened().read_row_group(number, [column], use_threads=False).column(0)

  def paths(self, column: str) -> tuple[np.ndarray, np.ndarray]:
    """`arrow.paths` of a column; reads only the row groups that may hold paths."""
    begins = [0, *self.ends[:-1]]
    numbers = (n for n in range(len(self.ends)) if self._may_hold_paths(n, column))
    return arrow.paths((begins[n], self.group(n, column)) for n in numbers)

  def _may_hold_paths(self, number: int, column: str) -> bool:
    """Whether images of a row group may be paths; not if the file says that all have bytes."""
    kind = self.schema.field(column).type
    if not arrow.may_be_paths(kind):
      return False
    group = self._metadata.row_group(number)
    leaves = map(group.column, range(group.num_columns))
    images = next((leaf for leaf in leaves if leaf.path_in_schema == f"{column}.bytes"), None)
    known = images and images.statistics
    return not (known and known.has_null_count and known.null_count == 0)

  def largest_group(self, column: str) -> int:
    """The bytes of a column in the largest row group."""
    groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
    return max((_bytes_of(group, column) for group in groups), default=0)

  def _opened(self):
    """The file opened anew, because readers cannot be shared by threads."""
    from pyarrow import parquet

    opened = byte_ranges.for_library(self.path, self._stamp)
    return parquet.ParquetFile(opened, metadata=self._metadata)


def _schema(opened: list[_File]):
  """The schema, which must be the same for all files."""
  first = opened[0]
  for file in opened:
    if not file.schema.equals(first.schema):
      raise SourceError(
        f'"{file.path}" has other columns than "{first.path}", or of other types; '
        + _advice(first, file, "move it to another folder, or write it again")
      )
  return first.schema


def _check_class_names(opened: list[_File], label: str) -> None:
  """Checks that all files have the same names for the numbers in the column of the labels.

  The schemas of pyarrow are equal whatever these are.

  Raises:
    SourceError: two files have different ones.
  """
  first = opened[0]
  names = arrow.class_names(first.schema, label) or []
  for file in opened:
    others = arrow.class_names(file.schema, label) or []
    if others != names and len(file):
      pairs = enumerate(itertools.zip_longest(others, names))
      number, (other, name) = next((i, pair) for i, pair in pairs if len({*pair}) > 1)
      raise SourceError(
        f'{number} in the column {label!r} is {_class(other)} in "{file.path}", but {_class(name)} '
        f'in "{first.path}"; '
        + _advice(first, file, "write all files again with the same class names")
      )


def _class(name: str | None) -> str:
  return "no class" if name is None else f"the class {shown(name)}"


def _advice(first: _File, other: _File, otherwise: str) -> str:
  """What to do with two files that do not belong together."""
  folders = first.path.parent, other.path.parent
  if folders[0] == folders[1]:
    return f"{otherwise}."
  one = max(folders, key=lambda folder: len(folder.parts))  # which the other one is not in
  return f'name one folder, such as "{one}", or {otherwise}.'


def _notes(opened: list[_File], image: str) -> list[str]:
  """Notes on large row groups and on empty files."""
  notes = []
  largest = max(opened, key=lambda file: file.largest_group(image))
  size = largest.largest_group(image)
  if size > _SLOW:
    notes.append(
      f'"{largest.path}" has row groups with up to {size / 1e6:,.0f} MB of images, and a whole '
      "group is read for an image, which is slow: write it with about 10 rows in a group."
    )
  if empty := [file for file in opened if not len(file)]:
    notes.append(f'{len(empty)} files have no rows ("{empty[0].path}").')
  return notes


def _bytes_of(group, column: str) -> int:
  """The uncompressed bytes of a column, with all its fields, in a row group."""
  leaves = map(group.column, range(group.num_columns))
  return sum(
    leaf.total_uncompressed_size
    for leaf in leaves
    if leaf.path_in_schema.partition(".")[0] == column
  )
