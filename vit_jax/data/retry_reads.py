"""Retries reads after errors that may pass, such as those of a network file system."""

import errno
import logging
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

PAUSES = (0.1, 0.5, 1.5)  # seconds before the second, third and fourth try
# Not the errors of a missing file, a folder, or missing permission: these would occur again.
MAY_PASS = frozenset(
  {
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EAGAIN,
    errno.EINTR,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ECONNRESET,
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
  }
)

_log = logging.getLogger(__name__)


def retried(
  attempt: Callable[[], Value],
  name: Callable[[], str],
  may_pass: Callable[[Exception], bool] = lambda error: getattr(error, "errno", None) in MAY_PASS,
) -> Value:
  """Calls `attempt` up to four times within about 2 seconds, and returns its result.

  Args:
    attempt: reads something.
    name: names what is read, for the log.
    may_pass: whether an error may be gone at the next try; all others are raised at once.

  Raises:
    Exception: the error of the last try.
  """
  for pause in PAUSES:
    try:
      return attempt()
    except Exception as error:
      if not may_pass(error):
        raise
      _log.warning("Reading %s is tried again in %g s: %s", name(), pause, error)
      time.sleep(pause)
  return attempt()
