"""Limits of this machine that would end a run in the middle of a library."""

import os
import pathlib
import resource
import sys
import threading
from collections.abc import Iterable

LONGEST_PART = 255  # bytes of a name
# Bytes of a workdir's path, on a disk and in a bucket; less than allowed, so that its files fit.
LONGEST_PATH = 3_800
LONGEST_KEY = 800
_MEMORY = "memory, ulimit -v"  # bytes; the shell shows units of 1,024
_LIMITS = {_MEMORY: resource.RLIMIT_AS, "processes, ulimit -u": resource.RLIMIT_NPROC}


def refusal(folder: pathlib.Path) -> str:
  """One sentence on why `folder` cannot hold a run; "" if it can."""
  return _of_length(folder) or _of_names(folder) or _of_threads()


def _of_length(folder):
  longest = max((len(os.fsencode(name)) for name in folder.parts), default=0)
  most = LONGEST_PATH if isinstance(folder, pathlib.Path) else LONGEST_KEY
  if longest <= LONGEST_PART and len(os.fsencode(str(folder))) <= most:
    return ""
  return (
    f"--workdir={str(folder)[:60]}... is too long: each name in it may have {LONGEST_PART} bytes, "
    f"and all of it {most:,}; give a shorter one."
  )


def _of_names(folder):
  encoding = sys.getfilesystemencoding()
  if encoding == "utf-8" or str(folder).isascii():
    return ""
  return (
    f"--workdir={folder} has letters that this locale ({encoding}) cannot write; set "
    "LC_ALL=C.UTF-8, or give a folder without them."
  )


def needed_threads() -> int:
  """About as many threads as JAX, TensorStore and the reading of images start on this machine."""
  return 48 + 2 * (os.cpu_count() or 1)


def _of_threads():
  """Starts the needed threads for a moment, because a library that cannot start one aborts."""
  needed = needed_threads()
  enough = threading.Event()
  started = []
  try:
    for _ in range(needed):
      thread = threading.Thread(target=enough.wait, daemon=True)
      thread.start()
      started.append(thread)
  except (RuntimeError, MemoryError):
    return (
      f"This process may start only {len(started)} threads, and a run needs about {needed}; raise "
      "the limit of processes (ulimit -u, or pids of the container) or of memory (ulimit -v)."
    )
  finally:
    enough.set()
    for thread in started:
      thread.join()
  return ""


def exhausted(error: BaseException) -> str:
  """One sentence on the limit that an error is about; "" if it is about none."""
  reason = reached(error)
  return reason and (
    f"{reason}; "
    "raise the limit, or use a machine or container with more, and start the same command again."
  )


def reached(error: BaseException) -> str:
  """The limit that an error is about, without a full stop; "" if it is about none."""
  if not isinstance(error, MemoryError) and "can't start new thread" not in str(error):
    return ""
  known = "; ".join(_set(_LIMITS)) or "no limit of its own"
  return f"This process gets no more memory or threads ({known})"


def of_memory() -> str:
  """A sentence on the limit of this process's memory, with a space after it; "" if it has none."""
  known = "; ".join(_set([_MEMORY]))
  return known and f"This process has a limit ({known}); raise it first. "


def _set(names: Iterable[str]) -> list[str]:
  """The limits that are set, with their values."""
  soft = {name: resource.getrlimit(_LIMITS[name])[0] for name in names}
  return [f"{name}: {n:,}" for name, n in soft.items() if n != resource.RLIM_INFINITY]
