"""How long the devices have been at work, known without holding up the loop that feeds them."""

import contextlib
import queue
import threading
import time

import jax


class Busy:
  """A thread that waits for each computation; a context manager around the loop that starts them.

  Computations run one after another: the devices are at work from the moment that one is given to
  them while they have none until the last one given is done.
  """

  def __init__(self, clock=time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._given = queue.SimpleQueue()
    self._open = 0  # computations that are not done
    self._since = 0.0  # when the devices last began to work
    self._before = 0.0  # seconds of work up to then
    self._thread = threading.Thread(target=self._follow, name="busy", daemon=True)

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._given.put(None)
    self._thread.join()  # A thread inside JAX when Python ends would end it with a crash.

  def given(self, outputs):
    """To be called right after a computation was dispatched, with arrays that it makes."""
    with self._lock:
      if not self._open:
        self._since = self._clock()
      self._open += 1
    self._given.put(outputs)

  def seconds(self) -> float:
    """How long the devices have worked so far, what is not yet done included."""
    with self._lock:
      return self._before + (self._clock() - self._since if self._open else 0.0)

  def _follow(self):
    while (outputs := self._given.get()) is not None:
      # The loop reads the same arrays, and so hears of errors.
      with contextlib.suppress(jax.errors.JaxRuntimeError):
        jax.block_until_ready(outputs)
      with self._lock:
        self._open -= 1
        if not self._open:
          self._before += self._clock() - self._since
