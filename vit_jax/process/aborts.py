"""A last message if a library aborts this process, as JAX does when another host is gone."""

import ctypes
import os
import signal
from collections.abc import Callable

_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
_kept = []  # the C library holds only the addresses of the handlers: they must never be freed


def before(speak: Callable[[], None]):
  """Calls `speak` if the process is aborted, and then ends the process with status 1.

  JAX has no working hook for this, and aborts from a thread of its own. Python's signal handlers
  run only in the main thread, which is too late. A C handler runs inside the call of abort, and
  the other threads keep running, so `speak` may take its time. Only the last `speak` is called.
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
