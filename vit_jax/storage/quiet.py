"""Hides what orbax prints about a save that fails: it raises the error as well, and that is told.

Orbax logs the error with a traceback. It also gives up the other writes of the save: their event
loop is closed, and each says so later, or when Python ends.
"""

import functools
import gc
import logging
import sys
import warnings


@functools.cache
def hide_tracebacks_of_failed_saves():
  """Hides them from now on, until the process ends; further calls change nothing."""
  logging.getLogger("absl").addFilter(lambda record: "orbax" not in record.pathname)
  logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # here, only orbax uses it
  warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
  show = sys.unraisablehook
  sys.unraisablehook = lambda event: None if _of_orbax(event) else show(event)


def _of_orbax(event) -> bool:
  code = getattr(event.object, "cr_code", None)
  of_save = code is not None and "orbax" in code.co_filename
  return of_save or str(event.exc_value) == "Event loop is closed"


def end_writes_that_were_given_up():
  """Ends the coroutines of failed saves, before Python shuts down and cannot hide what they say."""
  gc.collect()
