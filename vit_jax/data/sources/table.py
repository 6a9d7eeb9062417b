"""Common code of sources whose examples are rows with labels: tables, archives, Hugging Face."""

import collections
import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

import numpy as np

from vit_jax.data import byte_ranges, image_files
from vit_jax.data.sources import part, several
from vit_jax.data.sources.base import Block, ColumnError, Example, Source, SourceError
from vit_jax.process.text import listed, nfc, shown
from vit_jax.storage import files
from vit_jax.storage.paths import Path, absolute, is_url, within

LABELS = ("labels", "class", "category", "target")  # names of columns, in lower case
_WHOLE = re.compile("-?[0-9]{1,18}")


class Labels(NamedTuple):
  """The labels of all rows.

  Attributes:
    class_names: the name of each label; () if the rows have none.
    numbers: the labels of all rows, one row after the other.
    ends: (rows,) the end of each row's labels in `numbers`.
    multi: whether a row has any number of labels, rather than exactly one.
  """

  class_names: tuple[str, ...]
  numbers: np.ndarray
  ends: np.ndarray
  multi: bool

  @classmethod
  def none(cls, rows: int) -> Self:
    """No labels."""
    return cls((), np.zeros(0, np.int64), np.zeros(rows, np.int64), False)

  @classmethod
  def of_names(cls, names: Iterable[str], counts: Sequence[int] | None = None) -> Self:
    """Labels by name; the classes are the names that occur, in the order of `ordered`.

    Args:
      names: the labels of all rows, one row after the other.
      counts: the number of labels of each row; None: each row has one.

    Raises:
      SourceError: they are vectors with a 0 or a 1 for each class (multi-hot), or one is empty.
    """
    index = {}
    rows = np.fromiter((index.setdefault(name, len(index)) for name in names), np.int64)
    _check_all(~np.isin(rows, [index[name] for name in index if not name.strip()]), counts, "empty")
    class_names = ordered(nfc(index))
    number = {name: i for i, name in enumerate(class_names)}
    numbers = np.array([number[name] for name in nfc(index)], np.int64)[rows]
    if counts is None:
      several.check_texts(class_names)
    return cls._checked(numbers, class_names, counts, words=class_names)

  @classmethod
  def of_numbers(cls, numbers, class_names: Sequence[str], counts=None) -> Self:
    """Labels by number; arguments as for `of_names`.

    Raises:
      SourceError: a number is no class, or as `of_names`.
    """
    words = tuple(map(str, range(len(class_names))))
    return cls._checked(numbers, class_names, counts, words=words)

  @classmethod
  def _checked(cls, numbers, class_names, counts, *, words: Sequence[str]) -> Self:
    multi = counts is not None
    ends = _ends(len(numbers), counts)
    labels = cls(nfc(class_names), np.asarray(numbers, np.int64), ends, multi)
    known = (labels.numbers >= 0) & (labels.numbers < len(labels.class_names))
    first = labels.numbers[np.argmin(known)] if len(known) else 0
    _check_all(known, counts, f"none of the {len(class_names)} classes, such as {first}")
    if multi:
      several.check(words, labels.numbers, labels.ends)
    return labels

  def of(self, row: int) -> tuple[int, ...]:
    """The labels of a row."""
    begin = self.ends[row - 1] if row else 0
    return tuple(self.numbers[begin : self.ends[row]].tolist())

  def at(self, rows: np.ndarray) -> Self:
    """The labels of some rows, in the order of `rows`."""
    begins = np.concatenate([[0], self.ends[:-1]]).astype(np.int64)[rows]
    counts = self.ends[rows] - begins
    ends = np.cumsum(counts)
    inside = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    return self._replace(numbers=self.numbers[np.repeat(begins, counts) + inside], ends=ends)


def _ends(labels: int, counts: Sequence[int] | None) -> np.ndarray:
  """The end of each row's labels; `counts` is as for `Labels.of_names`."""
  if counts is None:
    return np.arange(1, labels + 1)
  return np.cumsum(counts).astype(np.int64)


def _check_all(right: np.ndarray, counts: Sequence[int] | None, fault: str):
  """Raises SourceError if a label is not right; `fault` says what the wrong ones are."""
  wrong = np.flatnonzero(~right)
  if len(wrong):
    row = np.searchsorted(_ends(len(right), counts), wrong[0], side="right")
    raise SourceError(
      f"{len(wrong):,} labels are {fault}, the first in row {row}; leave such rows out, or read "
      'without labels (label_key="").'
    )


def ordered(names: Iterable[str]) -> tuple[str, ...]:
  """The different class names in ascending order: as numbers if all are whole, otherwise as text.

  The classes of folders keep the order of text, as in other libraries.
  """
  names = sorted(set(names))
  if all(map(_WHOLE.fullmatch, names)):
    names.sort(key=int)
  return tuple(names)


class Table(Source):
  """Rows with labels, all of them or a part; a subclass reads the image of a row.

  A part such as "[:90%]" is taken from each class, by `part`; if rows have several labels, from all
  rows. Rows keep their order. The note on classes that the part lacks comes after the notes that a
  subclass has set before.

  Args:
    kind: the beginning of the identity.
    keys: (n,) bytes: a key of each row, unique in its class, wherever the data are stored; none
      ends with a zero byte, which numpy would drop.
    labels: the labels of the rows.
    cut: the text of the part; "": all.

  Attributes:
    rows: (n,) numbers of the rows in the part, ascending.

  Raises:
    SourceError: the text is no part, keys are not unique, or a class has no row in the part.
  """

  def __init__(self, kind: str, keys: np.ndarray, labels: Labels, cut: str):
    self.rows, lacking = _in_part(keys, labels, part.parse(cut))
    self.notes = (*self.notes, *_on_lacking(lacking, cut))
    self._labels = labels.at(self.rows)
    self.class_names = labels.class_names
    self.multi_label = labels.multi
    digest = hashlib.sha256(ascii((self.class_names, self.multi_label)).encode())
    digest.update(b"\0".join(keys[self.rows].tolist()))
    for array in (self._labels.numbers, self._labels.ends):
      digest.update(array.astype("<i8").tobytes())
    self.identity = f"{kind} {digest.hexdigest()[:16]}"

  def __len__(self) -> int:
    return len(self.rows)

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of the row; reads nothing."""
    return self._labels.of(index)

  @classmethod
  def anywhere(cls, argument: str) -> str:
    """The absolute path."""
    return absolute(argument)


class Files(Table):
  """Rows whose images are files.

  A subclass gives the path of an image by `_path`, and sets `_stamps`, the versions of the files of
  all rows, not only of the part.
  """

  _stamps: byte_ranges.FileVersions

  def _path(self, index: int) -> Path:
    raise NotImplementedError

  def __getitem__(self, index: int) -> Example:
    path = self._path(index)
    image = byte_ranges.image(path, self._stamps[self.rows[index]])
    return Example(image, self.labels(index), str(path))

  def name(self, index: int) -> str:
    """The file's path."""
    return str(self._path(index))

  def size(self, index: int) -> int:
    """The bytes of the file."""
    return (self._stamps[self.rows[index]] or files.stamp(self._path(index))).size


@contextlib.contextmanager
def naming(where: str) -> Iterator[None]:
  """Names the data in the message of a SourceError."""
  try:
    yield
  except SourceError as error:
    raise SourceError(f'"{where}": {error}') from error


def _on_lacking(classes: Sequence[str], cut: str) -> Iterator[str]:
  """A note on the classes that a part lacks, if there are any."""
  if classes:
    yield (
      f"{len(classes):,} classes of one image ({listed(classes)}) have none in {cut}; it is in the "
      "other part."
    )


def _in_part(
  keys: np.ndarray, labels: Labels, cut: part.Part | None
) -> tuple[np.ndarray, list[str]]:
  """The rows of a part, ascending, and the classes that the part lacks."""
  if cut is None:
    return np.arange(len(keys)), []
  if labels.class_names and not labels.multi:
    names = labels.class_names
    classes = labels.numbers
  else:
    names = ("all images",)
    classes = np.zeros(len(keys), np.int64)
  groups = {name: {} for name in names}
  for row, (key, label) in enumerate(zip(keys.tolist(), classes, strict=True)):
    groups[names[label]][key] = row
  if sum(map(len, groups.values())) < len(keys):
    raise SourceError(
      f"Several images of a class have the same name, so the part {cut.split!r} is not certain; "
      "rename them."
    )
  filled = {name: rows for name, rows in groups.items() if rows}
  chosen = part.choose(cut, {name: list(rows) for name, rows in filled.items()})
  rows = (rows[key] for rows, keys in zip(filled.values(), chosen, strict=True) for key in keys)
  lacking = [name for name, keys in zip(filled, chosen, strict=True) if not keys]
  return np.sort(np.fromiter(rows, np.int64)), lacking


def holds(path: Path, folders: Iterable[Path], pattern: str, form: str) -> bool:
  """Whether a path that is given without a form is a folder with files of tables or archives.

  Args:
    path: the folder.
    folders: where in it the files are looked for.
    pattern: of their names, such as "*.tar".
    form: of their source, such as "wds:PATTERN".

  Raises:
    SourceError: folders in it hold images, so that it may be a folder of classes as well.
  """
  found = [file for folder in folders for file in files.matching(folder, pattern)]
  found = [file for file in found if not file.name.startswith(".")]
  if not found:
    return False
  inner = (name for name, kind, _ in image_files.below(path) if kind == "image" and "/" in name)
  if image := next(inner, ""):
    raise SourceError(
      f'"{path}" holds "{found[0].name}" and folders with images, such as "{image}"; name it '
      f"{form.partition(':')[0]}:{path} to read the files {pattern}, or folder:{path} to read the "
      "images."
    )
  return True


def outside(where: str, paths: Iterable[str]) -> list[str]:
  """A note on images outside of a table's folder, if there are any."""
  found = list(filter(_leads_out, paths))
  if not found:
    return []
  return [f"{len(found):,} images of {where!r} are outside of its folder ({found[0]!r})."]


def _leads_out(path: str) -> bool:
  """Whether a path relative to a folder leads out of it."""
  return is_url(path) or os.path.normpath(path).startswith(("/", "../"))


def placed(folder: Path, names: np.ndarray, rows: range | np.ndarray) -> Iterator[Block]:
  """Groups the files of a folder by the real folders that hold them; lists each folder again.

  Args:
    folder: the folder.
    names: (n,) bytes, paths of the files, relative to the folder or absolute.
    rows: the rows of the files in the source.
  """
  if (np.char.find(names, b"/") < 0).all() and not files.links_in(folder):  # the usual case
    yield Block(str(files.real(folder)), names, rows)
    return
  files_in = collections.defaultdict(list)
  real = {}  # {folder below the root: (its real path, its files that are links)}
  for row, name in zip(rows, names.tolist(), strict=True):
    below, file = os.path.split(name)
    if below not in real:
      path = within(folder, os.fsdecode(below))
      real[below] = str(files.real(path)), set(map(os.fsencode, files.links_in(path)))
    place, links = real[below]
    if file in links:
      place, file = os.path.split(os.path.realpath(os.path.join(place, os.fsdecode(file))))
      file = os.fsencode(file)
    files_in[place].append((file, row))
  for place, pairs in files_in.items():
    inside, numbers = zip(*pairs, strict=True)
    yield Block(place, np.array(inside), np.array(numbers))


def columns_read(where: str, image: str, label: str, split: str) -> str:
  """A note on the columns of the images, of the labels and of the splits; "" for none of these."""
  words = f"Columns of {where!r}: images are in {image!r}"
  if label:
    words += f", labels in {label!r}"
  if split:
    words += f", splits in {split!r}"
  return f"{words}."


def column(key: str, usual: str, others: Sequence[str], names: Sequence[str], what: str) -> str:
  """The column that holds the images, or the labels; "" if no column has a known name.

  A known name may be written in any case; a column called exactly as the setting comes first.

  Args:
    key: the setting; a value other than `usual` was chosen by the user.
    usual: the default of the setting, in lower case.
    others: names of such a column in other programs, in lower case.
    names: the names of all columns.
    what: the source and the setting, for messages.

  Raises:
    ColumnError: the user chose a column that does not exist.
  """
  if key in names:
    return key
  if key != usual:
    raise ColumnError(f"{what}={key!r}: there is no such column; the columns are {shown(names)}.")
  known = (usual, *others)
  return next((name for other in known for name in names if name.lower() == other), "")
