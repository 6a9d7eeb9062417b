"""One worker imports the tests before the others, so that it alone compiles them to bytecode."""

import fcntl
import os
import pathlib
from typing import IO

from tests.compiler import CACHE


def taken() -> IO | None:
  """Takes the turn, or waits until the worker that has it gives it up; None without workers."""
  run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
  if not run:
    return None
  CACHE.parent.mkdir(exist_ok=True)
  file = (CACHE.parent / f"turn-{run}").open("a")
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    fcntl.flock(file, fcntl.LOCK_SH)
  return file


def given_up(file: IO | None):
  """Gives up the turn: all tests are imported."""
  if file:
    pathlib.Path(file.name).unlink(missing_ok=True)
    file.close()
