"""Ends a run that no longer moves, and says which process holds it up.

Where one of many hosts stalls, the others wait in a collective for ever. Each process therefore
has a thread that watches its progress, and another that tells it in WORKDIR/heartbeats/PROCESS, a
folder that all hosts share anyway, and hears of the others there. Two, because a folder can hang.
"""

import contextlib
import faulthandler
import os
import pathlib
import socket
import sys
import threading
import time
import traceback

import jax

from vit_jax.config import Config, RunError

FOLDER = "heartbeats"
LONGEST_PERIOD = 10.0  # seconds between two looks
NOTHING = "0 not heard of"
SILENCE = 120.0  # seconds; folders that hosts share may show what is written a minute later


def of_run(config: Config, folder: pathlib.Path) -> "Watchdog":
  """The watchdog of this process of a run."""
  return Watchdog(
    folder,
    limit=config.stall_seconds,
    silence=min(config.stall_seconds, SILENCE),
    process=jax.process_index(),
    processes=jax.process_count(),
  )


class Watchdog:
  """A context manager around the loop, which calls `beat` whenever it has got further."""

  def __init__(
    self, folder: pathlib.Path, *, limit: float, silence: float, process: int, processes: int
  ):
    """Makes a watchdog; it begins to watch when entered.

    Args:
      folder: the workdir.
      limit: seconds without a beat after which the process is ended; 0: never.
      silence: seconds after which another process that is not heard of any more counts as gone,
        and this one is ended; 0: never.
      process: index of this process.
      processes: how many there are.
    """
    self._folder = folder / FOLDER
    self._limit, self._silence = limit, silence
    self._process, self._processes = process, processes
    self._period = min(limit / 4 or LONGEST_PERIOD, silence / 8 or LONGEST_PERIOD, LONGEST_PERIOD)
    self._done = threading.Event()
    self._looks = 0
    self._heard = {}  # of each process: what it wrote last, since when, how often it was new
    self.beat("the start")

  def __enter__(self):
    threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
    if self._processes > 1:
      threading.Thread(target=self._correspond, name="heartbeats", daemon=True).start()
    return self

  def __exit__(self, error, *_):
    self._done.set()
    if error is None:  # One that ended with an error shall be missed.
      with contextlib.suppress(OSError):  # The folder may be gone; the run has come to its end.
        (self._folder / str(self._process)).unlink()

  def beat(self, doing: str):
    """The run has got as far as `doing`, such as "step 12"."""
    self._doing, self._since = doing, time.monotonic()

  def _watch(self):
    while not self._done.wait(self._period):
      if 0 < self._limit < time.monotonic() - self._since:
        self._end(
          f"process {self._process} has got no further than {self._doing} for over "
          f"{self._limit:g} s (config.stall_seconds)"
        )
      for process in self._gone():
        self._end(f"process {process} has not been heard of for over {self._silence:g} s")

  def _correspond(self):
    while not self._done.is_set():
      self._tell()
      self._listen()
      self._done.wait(self._period)

  def _tell(self):
    """Writes what this process does; the count shows that it still lives."""
    self._looks += 1
    text = f"{self._looks} {socket.gethostname()}, at {self._doing}"
    temporary = self._folder / f"{self._process}.tmp"
    try:
      self._folder.mkdir(exist_ok=True)
      temporary.write_text(text, encoding="utf-8")
      temporary.replace(self._folder / str(self._process))
    except OSError:  # The run's own writing will say what is wrong with the folder.
      pass

  def _listen(self):
    """Notes what every process wrote, and when it was new."""
    for process in range(self._processes):
      try:
        text = (self._folder / str(process)).read_text(encoding="utf-8")
      except OSError:
        text = NOTHING
      before, _, times = self._heard.get(process, ("", 0.0, 0))
      if before != text:
        self._heard[process] = text, time.monotonic(), times + 1

  def _gone(self) -> list[int]:
    """The processes that were heard of and no longer are, though the folder works.

    What was there at the first look may be of an earlier run; who has ended well has no file.
    """
    now, heard = time.monotonic(), dict(self._heard)
    _, own, _ = heard.get(self._process, ("", 0.0, 0))
    if not self._silence or now - own > self._silence / 2:
      return []
    return [
      process
      for process, (text, since, times) in heard.items()
      if times > 1 and text != NOTHING and now - since > self._silence
    ]

  def guarded(self, function):
    """Calls a function; where a computation fails in it that is shared, ends this process.

    One of the others may be gone, and JAX would wait for it.

    Raises:
      RunError: the devices have too little memory, which all of them find.
    """
    try:
      return function()
    except jax.errors.JaxRuntimeError as error:
      if "RESOURCE_EXHAUSTED" in str(error):
        raise RunError(
          f"The memory of the devices does not suffice at {self._doing}. Raise "
          "config.accumulation, split the parameters by config.mesh.fsdp, or set "
          f"config.model.remat. JAX says: {error}"
        ) from error
      if self._processes == 1:
        raise
      self._lost(error)

  def _lost(self, error: Exception):
    traceback.print_exception(error)
    words = str(error).partition("\n")[0]
    what = f"process {self._process} failed at {self._doing}: {words}"
    wait = 2 * self._period  # By then the others have spoken, or are silent.
    print(
      f"vit_jax: {what}. In {wait:.0f} s it will say who is silent; if JAX aborts it before, it is "
      "process 0, with which all must speak.",
      file=sys.stderr,
      flush=True,
    )
    time.sleep(wait)
    self._end(what)

  def _end(self, what: str):
    now = time.monotonic()
    known = [
      f"  process {process}: {text.partition(' ')[2]}; heard {now - since:.0f} s ago"
      for process, (text, since, _) in sorted(self._heard.items())
    ]
    advice = "Start the same command again to go on from the last checkpoint."
    print("What every thread was doing:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    print("\n".join([f"vit_jax: {what}. {advice}", *known]), file=sys.stderr, flush=True)
    os._exit(1)  # The main thread, or the end of JAX, would wait for what will not come.
