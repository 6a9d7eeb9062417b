"""Reads one object, or several as one file, in large blocks."""

import bisect
import itertools
from collections.abc import Callable, Sequence

from vit_jax.extras.buckets.client import Found
from vit_jax.storage.base import Seeking

BLOCK = 2**23  # bytes of one request


class Stream(Seeking):
  """Several objects in sequence as a seekable file."""

  def __init__(self, read: Callable[[Found, int, int], bytes], found: Sequence[Found]):
    """Makes the file.

    Args:
      read: read(object, start, stop) returns the bytes of a range.
      found: the objects, in order.
    """
    self._read = read
    self._found = found
    self._starts = [0, *itertools.accumulate(at.size for at in found)]
    super().__init__(self._starts[-1])
    self._block = b""
    self._block_start = 0

  def readinto(self, buffer) -> int:
    """Reads as much as the current block has."""
    if self._place >= self._size or not len(buffer):
      return 0
    if not self._block_start <= self._place < self._block_start + len(self._block):
      self._fetch()
    begin = self._place - self._block_start
    piece = self._block[begin : begin + len(buffer)]
    buffer[: len(piece)] = piece
    self._place += len(piece)
    return len(piece)

  def _fetch(self):
    number = bisect.bisect_right(self._starts, self._place) - 1
    start = self._starts[number]
    stop = min(self._place + BLOCK, self._starts[number + 1])
    self._block = self._read(self._found[number], self._place - start, stop - start)
    self._block_start = self._place

  def readall(self) -> bytes:
    """All bytes from here on."""
    pieces = []
    while piece := self.read(BLOCK):
      pieces.append(piece)
    return b"".join(pieces)
