"""stdout and stderr: of a run they are its least important output, of many tools the only one."""

import contextlib
import io
import os
import pathlib
import signal
import sys
from collections.abc import Callable

from vit_jax.process.text import one_line

INPUT, OUTPUT, ERRORS = 0, 1, 2


def of_run():
  """What cannot be shown is dropped: a full disk, a closed or broken pipe end no run."""
  _open_all(os.O_RDWR)
  sys.stdout, sys.stderr = (_stream(number, lambda _: None) for number in (OUTPUT, ERRORS))


def of_tool():
  """What cannot be written to stdout ends the tool: with status 1, or in silence by SIGPIPE.

  Ctrl-C ends it at once and without a traceback, as kill -9 would.
  """
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  signal.signal(signal.SIGINT, signal.SIG_DFL)
  _open_all(os.O_RDONLY)  # to write to what was closed is an error
  sys.stdout, sys.stderr = _stream(OUTPUT, _leave), _stream(ERRORS, lambda _: None)


def _open_all(flags):
  """Opens those of the three that are closed: else the next file would be taken for the console."""
  for number in (INPUT, OUTPUT, ERRORS):
    try:
      os.fstat(number)
    except OSError:  # the lowest number that is free is taken
      os.set_inheritable(os.open(os.devnull, flags), True)


def _stream(number, failed):
  raw = _Console(number, failed)
  buffered = io.BufferedWriter(raw, 1 if number == ERRORS else io.DEFAULT_BUFFER_SIZE)
  encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
  live = raw.isatty() or number == ERRORS
  return io.TextIOWrapper(buffered, encoding, errors="backslashreplace", line_buffering=live)


class _Console(io.FileIO):
  """One of the two; an error of writing goes to a function, and what was to be written is gone."""

  def __init__(self, number: int, failed: Callable[[OSError], None]):
    super().__init__(number, "w", closefd=False)
    self._failed = failed

  def write(self, data) -> int:
    try:
      return super().write(data) or len(data)  # None: a pipe that is full and does not wait
    except OSError as error:
      self._failed(error)
      return len(data)


def _leave(error):
  name = pathlib.Path(sys.argv[0]).stem
  leave_at_once(f"stdout cannot be written to ({error.strerror}).", 1, name)


def leave_at_once(message: str, status: int, name: str = "vit_jax"):
  """Says one sentence on stderr and ends the process, without waiting for any thread."""
  print(f"{name}: {one_line(message)}", file=sys.stderr)
  for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(OSError, RuntimeError):  # it may be what failed
      stream.flush()
  os._exit(status)
