"""stdout and stderr, exit statuses, and the signals that stop a command.

Output is the least important product of a run, but the only product of many tools.
"""

import contextlib
import io
import itertools
import logging
import os
import pathlib
import re
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TextIO

from vit_jax.process.text import one_line, printable

DONE = 0
FAILED = 1
WRONG_USAGE = 2  # a wrong command line, config or data; no device was touched
STOPPED = 75  # by a signal, with its state saved or nothing to save yet: start it again
MISCOMPUTED = 76  # a device computed a step wrongly; nothing of that step was saved
INTERRUPTED = 130  # by Ctrl-C at once; what shells report after SIGINT


INPUT, OUTPUT, ERRORS = 0, 1, 2

_CLEAR = "\x1b[K"  # clears the rest of a line
_BEGIN = re.compile(r"\r?(\x1b\[K)?")


def clearing(stream: TextIO) -> str:
  """What to print before a line so that it replaces one of progress, which terminals alone have."""
  if stream.isatty():
    return f"\r{_CLEAR}"
  return ""


def set_up():
  """Drops output that cannot be written: a full disk or a closed pipe must not end a run."""
  _open_all(os.O_RDWR)
  sys.stdout = _stream(OUTPUT, lambda _: None)
  sys.stderr = _stream(ERRORS, lambda _: None)
  show_warnings()


def of_tool():
  """Ends the tool if stdout cannot be written to: with status 1, or silently by SIGPIPE.

  Ctrl-C ends the tool at once, without a traceback.
  """
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  _open_all(os.O_RDONLY)  # read-only, so that writing to a stream that was closed is an error
  sys.stdout = _stream(OUTPUT, _leave)
  sys.stderr = _stream(ERRORS, lambda _: None)
  show_warnings()


def _open_all(flags):
  """Opens the standard streams that are closed; otherwise the next file would get their number."""
  for number in (INPUT, OUTPUT, ERRORS):
    try:
      os.fstat(number)
    except OSError:  # a new descriptor gets the lowest free number
      os.set_inheritable(os.open(os.devnull, flags), True)


def _stream(number, failed):
  raw = _Console(number, failed)
  size = 1 if number == ERRORS else io.DEFAULT_BUFFER_SIZE
  buffered = io.BufferedWriter(raw, size)
  encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
  live = raw.isatty() or number == ERRORS
  return _Text(buffered, encoding, errors="backslashreplace", line_buffering=live)


class _Text(io.TextIOWrapper):
  """A text stream that escapes characters that control a terminal, except line breaks and tabs.

  A text may begin by returning to the start of its line and clearing it, and end by clearing the
  rest of the line, as progress bars do.
  """

  def write(self, text: str) -> int:
    begin = _BEGIN.match(text).end()
    end = len(text.removesuffix(_CLEAR))
    inside = printable(text[begin:end], kept="\n\t")
    super().write(text[:begin] + inside + text[max(begin, end) :])
    return len(text)


def show_warnings():
  """Shows warnings and errors of the log on stderr, each on one line, and no other messages.

  They replace all other ways in which the log is shown.
  """
  handler = logging.StreamHandler(sys.stderr)
  handler.setLevel(logging.WARNING)
  handler.setFormatter(_Sentence())
  logging.root.handlers = [handler]


# Names of loggers that say nothing about where a message comes from.
_NAMELESS = ("root", "absl", "vit_jax")


class _Sentence(logging.Formatter):
  """A log message after its level, and after the name of the library if it is of another one."""

  def formatMessage(self, record) -> str:  # noqa: N802
    level = record.levelname.capitalize()
    library = record.name.partition(".")[0]
    if library not in _NAMELESS:
      level = f"{level} from {library}"
    return f"{clearing(sys.stderr)}{level}: {one_line(record.message)}"


class _Console(io.FileIO):
  """stdout or stderr; after a write error it calls a function and drops the data."""

  def __init__(self, number: int, failed: Callable[[OSError], None]):
    super().__init__(number, "w", closefd=False)
    self._failed = failed

  def write(self, data) -> int:
    try:
      return super().write(data) or len(data)  # None: a full pipe in non-blocking mode
    except OSError as error:
      self._failed(error)
      return len(data)


def _leave(error):
  name = pathlib.Path(sys.argv[0]).stem
  leave_at_once(f"stdout cannot be written to ({error.strerror}).", FAILED, name)


def complain(message: str, name: str = "vit_jax"):
  """Prints one sentence on stderr."""
  print(f"{clearing(sys.stderr)}{name}: {one_line(message)}", file=sys.stderr, flush=True)


def leave(message: str, status: int, name: str = "vit_jax") -> NoReturn:
  """Prints one sentence on stderr and ends the program."""
  complain(message, name)
  sys.exit(status)


def leave_at_once(message: str, status: int, name: str = "vit_jax"):
  """Prints one sentence on stderr and ends the process, without waiting for any thread."""
  print(f"{clearing(sys.stderr)}{name}: {one_line(message)}", file=sys.stderr)
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, RuntimeError):  # the stream itself may have failed
      stream.flush()
  os._exit(status)


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# The calls of JAX's preemption service in this process, which it expects to be counted from 1: a
# resumed run's steps are not, and a second run's are counted from 1 again.
_CALLS = itertools.count(1)


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
      leave_at_once("Interrupted.", INTERRUPTED)
    if not self._held:
      leave_at_once(
        "Stopped by a signal before there was anything to save; start the same command again.",
        STOPPED,
      )
    self._interrupted = self._interrupted or number == signal.SIGINT
    if self._several and number != signal.SIGTERM:
      os.kill(os.getpid(), signal.SIGTERM)
    self._received = True

  def alone(self) -> bool:
    """Whether a run of one process received a signal; it may then stop its work at once."""
    return not self._several and self._received

  def agreed(self) -> bool:
    """Whether all hosts stop after this step; every host must call this at every step.

    One host's signal is enough: JAX's preemption service picks a call that no host has made yet.
    """
    if not self._several:
      return self.alone()
    from jax.experimental import multihost_utils

    return multihost_utils.reached_preemption_sync_point(next(_CALLS))
