"""Reads an object, or several as one file, in large pieces."""

import bisect
import itertools
from collections.abc import Callable, Sequence

from vit_jax.extras.buckets.client import Found
from vit_jax.storage.base import Seeking

BLOCK = 2**23  # bytes of one request


class Stream(Seeking):
  """Objects one after another as a file that can be read and sought."""

  def __init__(self, read: Callable[[Found, int, int], bytes], found: Sequence[Found]):
    """Makes the file.

    Args:
      read: returns the bytes from one place to another of an object.
      found: the objects, in their order.
    """
    self._read, self._found = read, found
    self._starts = [0, *itertools.accumulate(at.size for at in found)]
    super().__init__(self._starts[-1])
    self._block, self._block_start = b"", 0

  def readinto(self, buffer) -> int:
    """Reads what the current block has of it."""
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
    start, end = self._starts[number], self._starts[number + 1]
    stop = min(self._place + BLOCK, end)
    self._block = self._read(self._found[number], self._place - start, stop - start)
    self._block_start = self._place

  def readall(self) -> bytes:
    """All bytes from here on."""
    pieces = []
    while piece := self.read(BLOCK):
      pieces.append(piece)
    return b"".join(pieces)
