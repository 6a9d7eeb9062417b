"""Being asked to stop: SIGTERM, SIGINT, and the decision that all hosts share.

JAX is imported where it is needed: signals are heard before it is loaded, which takes seconds.
"""

import os
import signal
import threading

from vit_jax.process import console

SIGNALS = (signal.SIGTERM, signal.SIGINT)
STOPPED, INTERRUPTED = 75, 130  # exit status; the second as shells have it after SIGINT


class StopRequest:
  """Hears the signals that ask this process to stop; none of them is raised as an exception.

  A thread hears them, because Python's own handlers wait for the main thread, which a compilation
  or a save may keep for minutes, and what they raise can be lost in a callback of JAX.

  A signal ends the process at once as long as there is nothing to save, and is then remembered: the
  loop ends after the step under way and saves. A second SIGINT always ends it at once.
  """

  def __init__(self):
    self._received = threading.Event()
    self._interrupted = self._held = self._several = False
    self._pipe = ()

  def listen(self):
    """Begins to hear; to be called in the main thread. Calling it again changes nothing."""
    if not self._pipe:
      self._pipe = read, write = os.pipe()
      os.set_blocking(write, False)
      signal.set_wakeup_fd(write, warn_on_full_buffer=False)
      threading.Thread(target=self._hear, args=(read,), name="signals", daemon=True).start()
    for number in SIGNALS:
      signal.signal(number, lambda *_: None)

  def hold(self):
    """From now on there is something to save: a signal is remembered and ends nothing at once."""
    self._held = True

  def join(self):
    """Makes this process one of several, which stop together.

    JAX's preemption service has listened for SIGTERM since they were connected; SIGINT is passed on
    to it.
    """
    self._held = self._several = True

  def _hear(self, read):
    while True:
      for number in os.read(read, 1):
        if number in SIGNALS:
          self.hear(number)

  def hear(self, number: int):
    """Does what a signal asks for; see the class."""
    if number == signal.SIGINT and (self._interrupted or not self._held):
      console.leave_at_once("Interrupted.", INTERRUPTED)
    if not self._held:
      console.leave_at_once(
        "Stopped by a signal before there was anything to save; start the same command again.",
        STOPPED,
      )
    self._interrupted = self._interrupted or number == signal.SIGINT
    if self._several and number == signal.SIGINT:
      os.kill(os.getpid(), signal.SIGTERM)
    self._received.set()

  def alone(self) -> bool:
    """Whether a run of one process was signalled: it may then drop what it does at once."""
    return not self._several and self._received.is_set()

  def agreed(self, step: int) -> bool:
    """Whether all hosts stop after `step`; every host must ask at every step.

    One host's signal is enough: JAX's preemption service picks a step that no host has passed.
    """
    if not self._several:
      return self.alone()
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(step)
