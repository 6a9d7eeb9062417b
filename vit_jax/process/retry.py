"""How long a write that fails is tried again."""

import time
from collections.abc import Callable

# Seconds between two tries.
FIRST = 1.0
MAX_PAUSE = 60.0


class Retry:
  """Times the tries after a failure: the pauses double, and the last try is at the end of the time.

  Attributes:
    failing: whether the last try failed.
  """

  def __init__(self, seconds: float, clock=time.monotonic):
    """Makes the timing of one kind of write.

    Args:
      seconds: how long after the first failure a try may be made; 0: never.
      clock: seconds, monotonic.
    """
    self.seconds = seconds
    self.failing = False
    self._clock = clock
    self._end = self._pause = self._next = 0.0

  def failed(self) -> bool:
    """Notes a failure, and returns whether there is time for another try."""
    now = self._clock()
    if not self.failing:
      self.failing = True
      self._end = now + self.seconds
      self._pause = FIRST / 2
    self._pause = min(2 * self._pause, MAX_PAUSE, self._end - now)
    self._next = now + self._pause
    return self._pause > 0

  def succeeded(self):
    """Notes that a try succeeded."""
    self.failing = False

  def due(self) -> bool:
    """Whether it failed and is to be tried again now."""
    return self.failing and self._clock() >= self._next

  def wait(self, alive: Callable[[], None]):
    """Waits until the next try is due, and calls `alive` every second."""
    while not self.due():
      alive()
      time.sleep(min(max(self._next - self._clock(), 0.0), 1.0))

  def in_words(self) -> str:
    """A sentence on how long it was tried, with a space before it; "" if it was tried once."""
    if not self.seconds:
      return ""
    return f" It was tried again for {self.seconds:g} s."
