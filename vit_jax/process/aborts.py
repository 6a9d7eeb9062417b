"""The last word where a library aborts this process, as JAX does when another host is gone."""

import ctypes
import os
import signal
from collections.abc import Callable

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_kept = []  # the C library knows the handlers by address alone: none may ever be freed


def before(speak: Callable[[], None]):
  """Has `speak` called where the process is aborted, which then ends with status 1.

  JAX has no working hook for this, and aborts from a thread of its own; Python's handlers only run
  once the main thread comes to them, when it is too late. A signal that a thread raises itself is
  handled in the middle of its call of abort, where other threads run on: `speak` may take its time.
  The last one given counts.
  """

  def aborted(_):
    try:
      speak()
    finally:
      os._exit(1)

  handler = _HANDLER(aborted)
  _kept.append(handler)
  library = ctypes.CDLL(None)
  library.signal.argtypes = ctypes.c_int, _HANDLER
  library.signal(signal.SIGABRT, handler)
