"""What orbax tells of saves that failed, of which some reaches its log alone."""

import logging
import os
import re
import sys
import threading
import traceback


class SaveErrors(logging.Filter):
  """Hears from orbax's log that a save has failed, and keeps the tracebacks out of the user's.

  After a failure it listens to the end of the process: threads of the save may write on till then,
  and each of their arrays would tell that the event loop it belongs to is closed.

  Attributes:
    heard: what was the matter, in a few words; empty as long as nothing is.
    error: the same, as it was raised.
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
    if str(event.exc_value) != "Event loop is closed":
      self._hook(event)

  def filter(self, record: logging.LogRecord) -> bool:
    """Whether a line of the log is shown: none is that tells of a failed save."""
    if not (record.exc_info and _of_orbax(record)):
      return True
    self.heard, self.error = reason_of(record.exc_info[1]), record.exc_info[1]
    return False

  def close(self):
    """Ends the listening."""
    sys.unraisablehook = self._hook
    for name in self._LOGGERS:
      logging.getLogger(name).removeFilter(self)


def _of_orbax(record: logging.LogRecord) -> bool:
  """Whether a logged error is orbax's, which asyncio may tell of without naming it."""
  frames = traceback.extract_tb(record.exc_info[2])
  said = [record.pathname, record.getMessage(), *(frame.filename for frame in frames)]
  return any("orbax" in text for text in said)


def is_writing() -> bool:
  """Whether a save is under way."""
  return any(thread.name == "save_finalize" for thread in threading.enumerate())


def reason_of(error: Exception) -> str:
  """Why a save failed, in a few words: that of the operating system where there is one."""
  inside = re.search(r"os_error_code='(\d+)'", str(error))  # as tensorstore gives it
  code = int(inside[1]) if inside else getattr(error, "errno", None)
  if code:
    return os.strerror(code)
  return (str(error).strip() or type(error).__name__).splitlines()[0]
