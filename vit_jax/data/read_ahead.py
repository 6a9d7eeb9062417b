"""Reads the examples of the next batches while earlier ones are decoded, many at once.

If each read waits for a network, as many reads must be under way as examples are decoded in that
time: 20 at 2,000 images per second and 10 ms per read. The reads need threads of their own, because
more decoding threads than cores only slow each other down.

A "part" here is a chunk of `pipeline`.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Sequence

from vit_jax.data.sources import Example

Read = Callable[[], Example]


class Now:
  """Reads each example when it is needed."""

  def __init__(self, read: Callable[[int], Example]):
    """`read` returns the example of a row."""
    self._read = read

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """Functions that return the examples of a part."""
    del index
    return [lambda row=row: self._read(row) for row in rows]

  def close(self):
    """Does nothing."""


class Ahead:
  """Reads the examples of a part, and of some parts after it, as soon as the part is needed.

  Args:
    read: returns the example of a row.
    rows_of: returns the rows of a part.
    count: number of parts.
    parts: how many parts to read ahead.
    threads: number of examples to read at once.
  """

  def __init__(
    self,
    read: Callable[[int], Example],
    rows_of: Callable[[int], Sequence[int]],
    *,
    count: int,
    parts: int,
    threads: int,
  ):
    self._read = read
    self._rows_of = rows_of
    self._count = count
    self._ahead = parts
    self._pool = concurrent.futures.ThreadPoolExecutor(threads, "read_ahead")
    self._begun = {}
    self._next = 0
    self._lock = threading.Lock()

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """Functions that wait for the examples of a part; call it once per part, roughly in order."""
    del rows
    with self._lock:
      while self._next <= min(index + self._ahead, self._count - 1):
        reads = [self._pool.submit(self._read, row) for row in self._rows_of(self._next)]
        self._begun[self._next] = [read.result for read in reads]
        self._next += 1
      return self._begun.pop(index)

  def close(self):
    """Stops further reads."""
    self._pool.shutdown(wait=False, cancel_futures=True)
