"""Reads the examples of the next batches while earlier ones are decoded, many at once.

Where each read waits for a network, as many must be under way as examples are decoded meanwhile:
at 2,000 images per second and 10 ms for an answer, 20. Threads that decode cannot be those that
wait, for more of them than cores only disturb each other.
"""

import concurrent.futures
import threading
from collections.abc import Callable, Sequence

from vit_jax.data.sources import Example

Read = Callable[[], Example]


class Now:
  """Reads each example when it is wanted."""

  def __init__(self, read: Callable[[int], Example]):
    """`read` returns the example of a row."""
    self._read = read

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """What returns each example of a part."""
    del index
    return [lambda row=row: self._read(row) for row in rows]

  def close(self):
    """Has nothing to end."""


class Ahead:
  """Reads the examples of a part, and of some parts behind it, as soon as the part is wanted.

  Args:
    read: returns the example of a row.
    rows_of: returns the rows of a part.
    count: number of parts.
    parts: how many to read ahead.
    threads: examples that are read at once.
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
    self._read, self._rows_of, self._count, self._ahead = read, rows_of, count, parts
    self._pool = concurrent.futures.ThreadPoolExecutor(threads, "read_ahead")
    self._begun, self._next, self._lock = {}, 0, threading.Lock()

  def part(self, index: int, rows: Sequence[int]) -> list[Read]:
    """What waits for each example of a part; parts are wanted once each, roughly in order."""
    del rows
    with self._lock:
      while self._next <= min(index + self._ahead, self._count - 1):
        reads = [self._pool.submit(self._read, row) for row in self._rows_of(self._next)]
        self._begun[self._next] = [read.result for read in reads]
        self._next += 1
      return self._begun.pop(index)

  def close(self):
    """Begins no further reads."""
    self._pool.shutdown(wait=False, cancel_futures=True)
