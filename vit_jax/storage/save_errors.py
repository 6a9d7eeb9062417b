"""Errors of orbax's saves, some of which appear only in its log."""

import gc
import logging
import os
import re
import sys
import threading
import traceback
import warnings


class SaveErrors(logging.Filter):
  """Finds failed saves in orbax's log, and hides their tracebacks from the user.

  After a failure it stays active until the process ends: threads of the save may go on writing,
  and each array would otherwise report that its event loop is closed.

  Attributes:
    heard: the reason of the last failure, in a few words; empty if there is none.
    error: the exception of that failure.
    needed: whether any save has failed.
  """

  _LOGGERS = ("absl", "asyncio")

  def __init__(self):
    super().__init__()
    self.heard, self.error, self.needed = "", None, False
    for name in self._LOGGERS:
      logging.getLogger(name).addFilter(self)
    self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable

  def _unraisable(self, event):
    code = getattr(event.object, "cr_code", None)
    of_save = code is not None and "orbax" in code.co_filename
    if not of_save and str(event.exc_value) != "Event loop is closed":
      self._hook(event)

  def end_what_was_given_up(self):
    """Ends the coroutines of failed saves; while Python shuts down, each prints a traceback."""
    with warnings.catch_warnings():
      warnings.simplefilter("ignore", RuntimeWarning)  # one that was never awaited
      gc.collect()

  def filter(self, record: logging.LogRecord) -> bool:
    """Whether to show a line of the log; lines about a failed save are hidden."""
    if not (record.exc_info and _of_orbax(record)):
      return True
    self.heard, self.error = reason_of(record.exc_info[1]), record.exc_info[1]
    return False

  def close(self):
    """Removes the filters."""
    sys.unraisablehook = self._hook
    for name in self._LOGGERS:
      logging.getLogger(name).removeFilter(self)


def _of_orbax(record: logging.LogRecord) -> bool:
  """Whether a logged error comes from orbax; asyncio may log it without naming orbax."""
  frames = traceback.extract_tb(record.exc_info[2])
  said = [record.pathname, record.getMessage(), *(frame.filename for frame in frames)]
  return any("orbax" in text for text in said)


def is_writing() -> bool:
  """Whether a save is under way."""
  return any(thread.name == "save_finalize" for thread in threading.enumerate())


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words; if possible, the operating system's reason."""
  inside = re.search(r"os_error_code='(\d+)'", str(error))  # tensorstore's format
  code = int(inside[1]) if inside else getattr(error, "errno", None)
  if code:
    return os.strerror(code)
  return (str(error).strip() or type(error).__name__).splitlines()[0]
