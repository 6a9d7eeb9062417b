"""Requests to stop: SIGTERM, SIGINT, SIGHUP, and the step at which all hosts stop.

JAX is imported inside functions: loading it takes seconds, and signals must be heard before that.
"""

import os
import signal
import threading

from vit_jax.process import console, exit_status

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopRequest:
  """Receives the signals that ask this process to stop; it raises no exceptions.

  The signals are received in a thread. Python's own handlers wait for the main thread, which a
  compilation or a save can block for minutes, and exceptions that they raise can be lost in a
  callback of JAX.

  As long as there is nothing to save, a signal ends the process at once. Later, a signal is
  remembered: the loop ends after the current step and saves. A second SIGINT always ends the
  process at once.
  """

  def __init__(self):
    self._received = self._interrupted = self._held = self._several = False
    self._pipe = ()

  def listen(self):
    """Starts to receive signals; call it in the main thread. Further calls change nothing."""
    if not self._pipe:
      self._pipe = read, write = os.pipe()
      os.set_blocking(write, False)
      signal.set_wakeup_fd(write, warn_on_full_buffer=False)
      threading.Thread(target=self._hear, args=(read,), name="signals", daemon=True).start()
    for number in SIGNALS:
      if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # not under nohup
        signal.signal(number, self._receive)

  def hold(self):
    """From now on there is something to save: a signal is remembered, and the process goes on."""
    self._held = True

  def join(self):
    """Makes this process one of several, which stop together.

    JAX's preemption service listens for SIGTERM from the moment the processes are connected.
    The other signals are passed on to it.
    """
    self._held = self._several = True

  def _receive(self, *_):
    """Runs in the main thread before its next step, however late `_hear` gets the processor."""
    self._received = True

  def _hear(self, read):
    while True:
      for number in os.read(read, 1):
        if number in SIGNALS:
          self.hear(number)

  def hear(self, number: int):
    """Handles a signal as the class describes."""
    if number == signal.SIGINT and (self._interrupted or not self._held):
      console.leave_at_once("Interrupted.", exit_status.INTERRUPTED)
    if not self._held:
      console.leave_at_once(
        "Stopped by a signal before there was anything to save; start the same command again.",
        exit_status.STOPPED,
      )
    self._interrupted = self._interrupted or number == signal.SIGINT
    if self._several and number != signal.SIGTERM:
      os.kill(os.getpid(), signal.SIGTERM)
    self._received = True

  def alone(self) -> bool:
    """Whether a run of one process received a signal; it may then stop its work at once."""
    return not self._several and self._received

  def agreed(self, step: int) -> bool:
    """Whether all hosts stop after `step`; every host must call this at every step.

    One host's signal is enough: JAX's preemption service picks a step that no host has passed.
    """
    if not self._several:
      return self.alone()
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(step)
