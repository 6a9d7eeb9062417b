"""Being asked to stop: SIGTERM, SIGINT, and the decision that all hosts share."""

import signal
import threading

import jax
from jax.experimental import multihost_utils

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
  """Remembers that a signal asked the run to stop; a context manager around the whole run.

  The first signal asks; a second SIGINT ends the process at once, as SIGKILL would, because a
  compilation or a save may keep Python from acting on it for minutes. In a run of several processes
  JAX's preemption service already listens for SIGTERM, and is left to; SIGINT is passed on to it.
  """

  def __init__(self):
    self._received = threading.Event()
    self._previous = {}

  def __enter__(self):
    numbers = SIGNALS if jax.process_count() == 1 else (signal.SIGINT,)
    for number in numbers:
      self._previous[number] = signal.signal(number, self._handle)
    return self

  def __exit__(self, *_):
    for number, handler in self._previous.items():
      signal.signal(number, handler)

  def _handle(self, number, _):
    self._received.set()
    if jax.process_count() > 1:
      signal.raise_signal(signal.SIGTERM)
    if number == signal.SIGINT:
      signal.signal(signal.SIGINT, signal.SIG_DFL)

  def alone(self) -> bool:
    """Whether a run of one process was signalled: it may then drop what it does at once."""
    return jax.process_count() == 1 and self._received.is_set()

  def agreed(self, step: int) -> bool:
    """Whether all hosts stop after `step`; every host must ask at every step.

    One host's signal is enough: JAX's preemption service picks a step that no host has passed.
    """
    if jax.process_count() == 1:
      return self.alone()
    return multihost_utils.reached_preemption_sync_point(step)
