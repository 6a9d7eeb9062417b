"""Finds the records of an ArrayRecord file, and parses them from its bytes.

Used for files that array_record's own reader cannot open, because they are not on this machine. The
format is Riegeli/records (github.com/google/riegeli, doc/riegeli_records_file_format.md).
ArrayRecord adds two chunks at the end of a file: a footer with one record per chunk, which gives
the chunk's begin and number of records, and a last block, which gives the begin of the footer. The
hashes of the format (HighwayHash) are not checked, because transfers have checksums of their own.
"""

import itertools
import struct
from collections.abc import Callable

import numpy as np

BLOCK = 2**16  # bytes; each block begins with a header, also in the middle of a chunk
_BLOCK_HEAD = 24  # bytes
_CHUNK_HEAD = struct.Struct("<8xQ8xQQ")  # bytes of data; kind and records; bytes when decoded
_RECORDS = ord("r")  # the kind of a chunk of records, one after the other
_CODECS = {ord("b"): "brotli", ord("z"): "zstd"}
# The tags of the fields 1 and 3 in the footer, which are numbers.
_BEGIN = 1 << 3
_COUNT = 3 << 3
_MAGIC = 0x71930E704FDAE05E  # in the last block
_MOST = 2**31  # bytes of a chunk


class Index:
  """Where the records of a file lie.

  Args:
    begins: (chunks + 1,) the begin of each chunk, and the end of the last one.
    counts: (chunks,) number of records in each chunk.
  """

  def __init__(self, begins: np.ndarray, counts: np.ndarray):
    self._begins = begins
    # The first record of each chunk, and the number of all records.
    self._firsts = np.concatenate([[0], np.cumsum(counts)])

  def __len__(self) -> int:
    return int(self._firsts[-1])

  def place(self, record: int) -> tuple[int, int, int]:
    """Begin and end of the chunk that holds a record, and the record's number in the chunk."""
    chunk = int(np.searchsorted(self._firsts[1:], record, side="right"))
    row = record - int(self._firsts[chunk])
    return int(self._begins[chunk]), int(self._begins[chunk + 1]), row


def index(read: Callable[[int, int], bytes | memoryview], size: int) -> Index:
  """Reads the index of a file.

  Args:
    read: returns the bytes from one offset up to another.
    size: bytes of the file.

  Raises:
    ValueError: the file is not a whole ArrayRecord file.
  """
  last = size - BLOCK
  if last < 0 or size % BLOCK:
    raise ValueError("it is cut short, or no ArrayRecord file")
  fields = _varints(records(read(last, size), last)[0]).tolist()
  if len(fields) != 4 or fields[3] != _MAGIC or fields[1] > last:
    raise ValueError("its last block is not that of an ArrayRecord file")
  footer = fields[1]
  values, ends = _chunk(read(footer, last), footer)
  fields = _varints(values[ends[0] :]).reshape(-1, 2)  # the first record says what the others are
  begins = np.append(fields[fields[:, 0] == _BEGIN, 1], np.uint64(footer)).astype(np.int64)
  counts = fields[fields[:, 0] == _COUNT, 1].astype(np.int64)
  if len(begins) != len(counts) + 1 or (np.diff(begins) <= 0).any():
    raise ValueError("the places of its records are damaged")
  return Index(begins, counts)


def records(content: bytes | memoryview, begin: int) -> list[bytes]:
  """The records of a chunk.

  Args:
    content: bytes of the file that begin with the chunk.
    begin: the chunk's offset in the file.

  Raises:
    ValueError: the chunk is damaged, or of an unsupported kind.
  """
  values, ends = _chunk(content, begin)
  return [values[start:end] for start, end in itertools.pairwise([0, *ends])]


def record(content: bytes | memoryview, begin: int, row: int) -> bytes:
  """Record number `row` of a chunk; the other arguments are as for `records`."""
  values, ends = _chunk(content, begin)
  if row >= len(ends):
    raise ValueError("a chunk has fewer records than the index says")
  if row == 0:
    return values[: ends[0]]
  return values[ends[row - 1] : ends[row]]


def _chunk(content: bytes | memoryview, begin: int) -> tuple[bytes, list[int]]:
  """The records of a chunk, one after the other, and the end of each."""
  content = _without_heads(content, begin)
  if len(content) < _CHUNK_HEAD.size:
    raise ValueError("a chunk is cut short")
  size, kind_and_count, decoded = _CHUNK_HEAD.unpack_from(content)
  kind = kind_and_count & 0xFF
  count = kind_and_count >> 8
  data = memoryview(content)[_CHUNK_HEAD.size :][:size]
  if len(data) < size or not size or decoded > _MOST:
    raise ValueError("a chunk is cut short")
  if kind != _RECORDS:
    raise ValueError(f"a chunk is of the kind {chr(kind)!r}, not 'r': write it without transpose")
  length, at = _varint(data, 1)
  values = _decompressed(data[0], data[at + length :])
  ends = [len(values)]
  if count != 1:  # for a single record, decompressing its size would double the time of a read
    ends = np.cumsum(_varints(_decompressed(data[0], data[at : at + length]))).tolist()
  if len(ends) != count or (ends or [0])[-1] != len(values) or len(values) != decoded:
    raise ValueError("a chunk has another size than it says")
  return values, ends


def _without_heads(content: bytes | memoryview, begin: int) -> bytes:
  """The content, which begins at offset `begin` of the file, without the headers of blocks."""
  content = memoryview(content)
  first = -begin % BLOCK  # where the first block begins
  pieces = [content[:first]]
  for start in range(first, len(content), BLOCK):
    pieces.append(content[start + _BLOCK_HEAD : start + BLOCK])
  return b"".join(pieces)


def _decompressed(codec: int, data: memoryview) -> bytes:
  if not codec:
    return bytes(data)
  if codec not in _CODECS:
    raise ValueError(f"it is compressed in a way that is not known ({chr(codec)!r})")
  import pyarrow as pa  # imported late, because few sources need it

  size, at = _varint(data, 0)
  if size > _MOST:
    raise ValueError("a chunk has another size than it says")
  if not size:
    return b""
  try:
    # `asbytes`, because Arrow frees its own memory at once, which takes three times as long.
    return pa.decompress(data[at:], size, _CODECS[codec], asbytes=True)
  except OSError as error:
    raise ValueError(f"it cannot be decompressed: {error}") from error


def _varint(data: memoryview, at: int) -> tuple[int, int]:
  """A varint of Protocol Buffers at offset `at`, and the offset after it."""
  value = shift = 0
  while True:
    if at >= len(data) or shift > 63:
      raise ValueError("a number in it is damaged")
    byte = data[at]
    value |= (byte & 0x7F) << shift
    shift += 7
    at += 1
    if not byte & 0x80:
      return value, at


def _varints(data: bytes) -> np.ndarray:
  """All varints of a sequence, (n,) uint64."""
  content = np.frombuffer(data, np.uint8)
  last = np.flatnonzero(content < 0x80)  # the last byte of each number
  if not len(content):
    return np.zeros(0, np.uint64)
  if not len(last) or last[-1] != len(content) - 1:
    raise ValueError("a number in it is damaged")
  first = np.concatenate([[0], last[:-1] + 1])
  shift = 7 * (np.arange(len(content)) - np.repeat(first, last - first + 1))
  if shift.max() > 63:
    raise ValueError("a number in it is damaged")
  bits = (content & np.uint8(0x7F)).astype(np.uint64) << shift.astype(np.uint64)
  return np.add.reduceat(bits, first)
