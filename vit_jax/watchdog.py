"""Ends a run that no longer moves, and says which process holds it up.

Where one of many hosts stalls, the others wait in a collective for ever. Each process therefore
has a thread that watches its progress and tells it in WORKDIR/heartbeats/PROCESS, a folder that all
hosts share anyway.
"""

import faulthandler
import os
import pathlib
import socket
import sys
import threading
import time

import jax

from vit_jax.config import Config

FOLDER = "heartbeats"
LONGEST_PERIOD = 10.0  # seconds between two looks


def of_run(config: Config, folder: pathlib.Path) -> "Watchdog":
  """The watchdog of this process of a run."""
  return Watchdog(
    folder,
    limit=config.stall_seconds,
    process=jax.process_index(),
    processes=jax.process_count(),
  )


class Watchdog:
  """A context manager around the loop, which calls `beat` whenever it has got further."""

  def __init__(self, folder: pathlib.Path, *, limit: float, process: int, processes: int):
    """Makes a watchdog; it begins to watch when entered.

    Args:
      folder: the workdir.
      limit: seconds without a beat after which the process is ended; 0: never.
      process: index of this process.
      processes: how many there are.
    """
    self._folder = folder / FOLDER
    self._limit, self._process, self._processes = limit, process, processes
    self._period = min(limit / 4 or LONGEST_PERIOD, LONGEST_PERIOD)
    self._done = threading.Event()
    self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
    self._looks = 0
    self._heard = {}  # of each process: what its file held last, and since when
    self.beat("the start")

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._done.set()

  def beat(self, doing: str):
    """The run has got as far as `doing`, such as "step 12"."""
    self._doing, self._since = doing, time.monotonic()

  def _watch(self):
    while not self._done.wait(self._period):
      self._tell()
      self._listen()
      if 0 < self._limit < time.monotonic() - self._since:
        self._end(
          f"process {self._process} has got no further than {self._doing} for over "
          f"{self._limit:g} s (config.stall_seconds)"
        )

  def _tell(self):
    """Writes what this process does; the count shows that it still lives."""
    self._looks += 1
    if self._processes > 1:
      text = f"{self._looks} {socket.gethostname()}, at {self._doing}"
      temporary = self._folder / f"{self._process}.tmp"
      try:
        self._folder.mkdir(exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self._folder / str(self._process))
      except OSError:  # The run's own writing will say what is wrong with the folder.
        pass

  def _listen(self):
    """Notes what the others wrote, and when it was new."""
    for process in range(self._processes if self._processes > 1 else 0):
      try:
        text = (self._folder / str(process)).read_text(encoding="utf-8")
      except OSError:
        text = "0 not heard of"
      if self._heard.get(process, ("", 0.0))[0] != text:
        self._heard[process] = text, time.monotonic()

  def guarded(self, function):
    """Calls a function; where a computation fails in it that is shared, ends this process.

    One of the others may be gone, and JAX would wait for it.
    """
    try:
      return function()
    except jax.errors.JaxRuntimeError as error:
      if self._processes == 1:
        raise
      self._lost(error)

  def _lost(self, error: Exception):
    time.sleep(2 * self._period)  # By then the others have spoken, or are silent.
    words = str(error).partition("\n")[0]
    self._end(f"process {self._process} failed at {self._doing}: {words}")

  def _end(self, what: str):
    now = time.monotonic()
    known = [
      f"  process {process}: {text.partition(' ')[2]}; heard {now - since:.0f} s ago"
      for process, (text, since) in sorted(self._heard.items())
    ]
    advice = "Start the same command again to go on from the last checkpoint."
    print("What every thread was doing:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    print("\n".join([f"vit_jax: {what}. {advice}", *known]), file=sys.stderr, flush=True)
    os._exit(1)  # The main thread, or the end of JAX, would wait for what will not come.
