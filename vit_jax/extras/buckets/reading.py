"""Reads one object, or several as one file, in large blocks."""

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vit_jax.extras.buckets.client import Found
from vit_jax.storage.base import Seeking

BLOCK = 2**23  # bytes of one request


class Piece(NamedTuple):
  """The bytes from `start` to before `stop` of an object."""

  at: Found
  start: int
  stop: int


class Stream(Seeking):
  """Several objects in sequence as a seekable file."""

  def __init__(
    self,
    read: Callable[[Piece], bytes],
    found: Sequence[Found],
    at_once: Callable[[Callable[[Piece], bytes], Iterable[Piece]], list[bytes]],
  ):
    """Makes the file.

    Args:
      read: returns the bytes of a piece.
      found: the objects, in order.
      at_once: as `Client.at_once`, reads the pieces of small objects in parallel.
    """
    self._read = read
    self._found = found
    self._at_once = at_once
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
    stop = min(self._place + BLOCK, self._size)
    first = bisect.bisect_right(self._starts, self._place) - 1
    end = bisect.bisect_left(self._starts, stop)
    pieces = [
      Piece(at, max(self._place - start, 0), min(stop - start, at.size))
      for at, start in zip(self._found[first:end], self._starts[first:end], strict=True)
    ]
    self._block = b"".join(self._at_once(self._read, pieces))
    self._block_start = self._place

  def readall(self) -> bytes:
    """All bytes from here on."""
    pieces = []
    while piece := self.read(BLOCK):
      pieces.append(piece)
    return b"".join(pieces)
