"""stdout and stderr: the least important output of a run, but the only output of many tools."""

import contextlib
import io
import logging
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable

from vit_jax.process import exit_status
from vit_jax.process.text import one_line, printable

INPUT, OUTPUT, ERRORS = 0, 1, 2

_CLEAR = "\x1b[K"  # clears the rest of a line
_BEGIN = re.compile(r"\r?(\x1b\[K)?")


def set_up():
  """Drops output that cannot be written: a full disk or a closed pipe must not end a run."""
  _open_all(os.O_RDWR)
  logging.setLogRecordFactory(_Record)
  sys.stdout = _stream(OUTPUT, lambda _: None)
  sys.stderr = _stream(ERRORS, lambda _: None)


def of_tool():
  """Ends the tool if stdout cannot be written to: with status 1, or silently by SIGPIPE.

  Ctrl-C ends the tool at once, without a traceback.
  """
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  _open_all(os.O_RDONLY)  # read-only, so that writing to a stream that was closed is an error
  logging.setLogRecordFactory(_Record)
  sys.stdout = _stream(OUTPUT, _leave)
  sys.stderr = _stream(ERRORS, lambda _: None)


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


class _Record(logging.LogRecord):
  """A log message on one line."""

  def getMessage(self) -> str:  # noqa: N802
    return one_line(super().getMessage())


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
  leave_at_once(f"stdout cannot be written to ({error.strerror}).", exit_status.FAILED, name)


def leave(message: str, status: int, name: str = "vit_jax"):
  """Prints one sentence on stderr and ends the program."""
  print(f"{name}: {one_line(message)}", file=sys.stderr, flush=True)
  sys.exit(status)


def leave_at_once(message: str, status: int, name: str = "vit_jax"):
  """Prints one sentence on stderr and ends the process, without waiting for any thread."""
  print(f"{name}: {one_line(message)}", file=sys.stderr)
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, RuntimeError):  # the stream itself may have failed
      stream.flush()
  os._exit(status)
