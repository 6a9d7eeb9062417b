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
  sys.stdout, sys.stderr = (_stream(number, lambda _: None) for number in (OUTPUT, ERRORS))


def of_tool():
  """Ends the tool if stdout cannot be written to: with status 1, or silently by SIGPIPE.

  Ctrl-C ends the tool at once, without a traceback.
  """
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  _open_all(os.O_RDONLY)  # read-only, so that writing to a stream that was closed is an error
  logging.setLogRecordFactory(_Record)
  sys.stdout, sys.stderr = _stream(OUTPUT, _leave), _stream(ERRORS, lambda _: None)


def _open_all(flags):
  """Opens those of the three streams that are closed; else the next file would get their number."""
  for number in (INPUT, OUTPUT, ERRORS):
    try:
      os.fstat(number)
    except OSError:  # a new descriptor gets the lowest free number
      os.set_inheritable(os.open(os.devnull, flags), True)


def _stream(number, failed):
  raw = _Console(number, failed)
  buffered = io.BufferedWriter(raw, 1 if number == ERRORS else io.DEFAULT_BUFFER_SIZE)
  encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
  live = raw.isatty() or number == ERRORS
  return _Text(buffered, encoding, errors="backslashreplace", line_buffering=live)


class _Text(io.TextIOWrapper):
  """Text without characters that would control a terminal, but for line breaks and tabs.

  A text may begin by going to the begin of its line, and clear the line, as progress does.
  """

  def write(self, text: str) -> int:
    begin = _BEGIN.match(text).end()
    end = len(text) - len(_CLEAR) if text.endswith(_CLEAR) else len(text)
    inside = printable(text[begin:end], kept="\n\t")
    super().write(text[:begin] + inside + text[max(begin, end) :])
    return len(text)


class _Record(logging.LogRecord):
  """A message of the log, which is one line."""

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
