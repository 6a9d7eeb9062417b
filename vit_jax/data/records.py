"""Writes ArrayRecord files, and reads records by position from any number of them."""

import bisect
import collections
import functools
import itertools
import os
import resource
import threading
from collections.abc import Iterable
from typing import NamedTuple

from vit_jax.config import RunError
from vit_jax.data import array_record, byte_ranges
from vit_jax.storage import base
from vit_jax.storage.base import ChangedError, FileVersion, UnreachableError
from vit_jax.storage.files import atomic_write
from vit_jax.storage.paths import UrlPath

# No reading ahead, which would be wasted on random access, and no extra threads.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER = 2**15  # bytes per read
_OPENING = 64  # files that may be opened at once
_SHARE = 4  # records use at most a quarter of the files that a process may open


class DamagedRecord(RunError):
  """One record of a file cannot be read; the other records of the file may be intact."""


class Span(NamedTuple):
  """Records `first` to `first + count - 1` of the file at `path`.

  Attributes:
    stamp: the version of the file, if it is not on this machine.
  """

  path: str
  first: int
  count: int
  stamp: FileVersion | None = None


class Records:
  """The records of several spans as one sequence of bytes; safe for any number of threads.

  Opens a file when one of its records is first read. The open file keeps its index in memory, 8
  bytes for each record, or 16 if it is not on this machine. When too many files are open, the least
  recently used file is closed. array_record's own data source never closes a file: with more shards
  than the limit of open files, often 1,024, it fails in the middle of a run.

  Args:
    parts: the spans, in the order of their records.
    remedy: what to do about a missing or damaged file, for the message.
    most_open: largest number of open files; 0: a quarter of what the system allows.

  Attributes:
    parts: as given.
  """

  def __init__(self, parts: list[Span], *, remedy: str, most_open: int = 0):
    self.parts = parts
    self._remedy = remedy
    self._ends = list(itertools.accumulate(span.count for span in parts))
    self._most_open = most_open or _files_allowed(_SHARE * len(parts)) // _SHARE
    self._readers = collections.OrderedDict()
    self._lock = threading.Lock()
    self._opening = [threading.Lock() for _ in range(_OPENING)]

  def __len__(self) -> int:
    return self._ends[-1] if self._ends else 0

  def __getitem__(self, position: int) -> bytes:
    """Reads one record.

    Raises:
      IndexError: the position is not in 0..len - 1.
      DamagedRecord: the record is damaged.
      RunError: the file is missing or changed, has too few records, or cannot be opened.
      UnreachableError: the storage of the file does not answer.
    """
    number, row = self._place(position)
    try:
      reader = self._reader(number)
    except (UnreachableError, ChangedError):
      raise
    except (RuntimeError, ValueError) as error:
      raise RunError(self._in_words(number, row, error)) from error

    def title() -> str:
      return f'record {row} of "{self.parts[number].path}"'

    try:
      return base.retried(lambda: reader.read([row])[0], title, _unreadable)
    except (UnreachableError, ChangedError):
      raise
    except (RuntimeError, ValueError) as error:
      raise DamagedRecord(self._in_words(number, row, error)) from error

  def place(self, position: int) -> tuple[str, int]:
    """The path of a record's file, and the record's number in it; reads nothing."""
    number, row = self._place(position)
    return self.parts[number].path, row

  def _in_words(self, number: int, row: int, error: Exception) -> str:
    return (
      f'Record {row} of "{self.parts[number].path}" cannot be read ({error}); the file is missing '
      f"or damaged: {self._remedy}."
    )

  def _place(self, position):
    if not 0 <= position < len(self):
      raise IndexError(f"There is no record {position} among {len(self)}.")
    number = bisect.bisect_right(self._ends, position)
    span = self.parts[number]
    return number, position - self._ends[number] + span.count + span.first

  def _reader(self, number: int):
    if reader := self._opened(number):
      return reader
    with self._opening[number % _OPENING]:
      if reader := self._opened(number):
        return reader
      reader = _open(self.parts[number])
      with self._lock:
        self._readers[number] = reader
        while len(self._readers) > self._most_open:
          self._readers.popitem(last=False)  # closed once no thread reads it any more
    return reader

  def _opened(self, number: int):
    with self._lock:
      if number in self._readers:
        self._readers.move_to_end(number)
      return self._readers.get(number)


def _unreadable(error: Exception) -> bool:
  """Whether the error is one of array_record, which does not say why a read failed."""
  return isinstance(error, RuntimeError) and not isinstance(error, UnreachableError | ChangedError)


def write(path: str, records: Iterable[bytes], *, compressed: bool = True) -> None:
  """Writes a file of records that can be read one by one; it appears when it is complete."""
  # Imported late, because it is slow, and not all sources need it.
  from array_record.python import array_record_module

  options = "group_size:1" if compressed else "group_size:1,uncompressed"
  with atomic_write(path) as partial:
    writer = array_record_module.ArrayRecordWriter(partial, options)
    for record in records:
      writer.write(record)
    writer.close()


def _open(span: Span):
  """Opens the file of a span.

  Raises:
    RuntimeError: the file is missing or damaged.
    ValueError: the file has too few records. array_record reads empty records from some truncated
      files.
  """
  from array_record.python import array_record_module

  if span.stamp:
    return _checked(_Distant(UrlPath(span.path), span.stamp), span)
  if os.path.exists(span.path) and not os.path.isfile(span.path):  # opening a FIFO would block
    raise ValueError("it is not a regular file")
  reader = array_record_module.ArrayRecordReader(
    span.path, options=_OPTIONS, file_reader_buffer_size=_BUFFER
  )
  return _checked(reader, span)


def _checked(reader, span: Span):
  if reader.num_records() < span.first + span.count:
    raise ValueError(f"it has {reader.num_records()} records, not {span.first + span.count}")
  return reader


class _Distant:
  """Reads a file that is not on this machine, with one request per record."""

  def __init__(self, path: UrlPath, stamp: FileVersion):
    self._read = functools.partial(byte_ranges.part, path, stamp)
    self._index = array_record.index(self._read, stamp.size)

  def num_records(self) -> int:
    return len(self._index)

  def read(self, rows: list[int]) -> list[bytes]:
    places = map(self._index.place, rows)
    return [array_record.record(self._read(begin, end), begin, row) for begin, end, row in places]


def _files_allowed(wanted: int) -> int:
  """Raises the soft limit of open files towards `wanted`; returns how many files may be open."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  goal = wanted
  if hard != resource.RLIM_INFINITY:
    goal = min(wanted, hard)
  if soft == resource.RLIM_INFINITY:
    return goal
  if goal <= soft:
    return soft
  try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
  except (OSError, ValueError):  # some systems allow less than the hard limit
    return soft
  return goal
