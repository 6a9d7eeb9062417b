"""Measures how long the devices have worked, without delaying the loop that feeds them."""

import contextlib
import queue
import threading
import time

import jax


class Busy:
  """Waits for each computation in a thread of its own; a context manager around the loop.

  The devices count as working while any dispatched computation is not done.
  """

  def __init__(self, clock=time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._queue = queue.SimpleQueue()
    self._pending = 0  # computations that are not done
    self._since = 0.0  # when the devices last began to work
    self._before = 0.0  # seconds of work up to then
    self._thread = threading.Thread(target=self._follow, name="busy", daemon=True)

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._queue.put(None)
    self._thread.join()  # Python crashes at its exit if a thread is still inside JAX.

  def dispatched(self, outputs):
    """Notes a computation by its output arrays; call it right after dispatching."""
    with self._lock:
      if not self._pending:
        self._since = self._clock()
      self._pending += 1
    self._queue.put(outputs)

  def seconds(self, now: float) -> float:
    """Seconds that the devices have worked up to `now`, with the work that is still under way."""
    with self._lock:
      return self._before + (now - self._since if self._pending else 0.0)

  def _follow(self):
    while (outputs := self._queue.get()) is not None:
      with contextlib.suppress(Exception):  # The loop reads the same arrays, and raises it there.
        jax.block_until_ready(outputs)
      with self._lock:
        self._pending -= 1
        if not self._pending:
          self._before += self._clock() - self._since
