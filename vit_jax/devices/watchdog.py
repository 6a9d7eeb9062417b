"""Ends a run that no longer moves, and says which process holds it up.

Where one of many hosts stalls, the others wait in a collective for ever. Each process therefore
has a thread that watches its progress, and another that tells it in WORKDIR/heartbeats/PROCESS, a
folder that all hosts share anyway, and hears of the others there. Two, because a folder can hang.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import socket
import sys
import threading
import time
import traceback
from typing import NamedTuple

import jax

from vit_jax.config import RunError
from vit_jax.devices import hosts
from vit_jax.process import aborts

FOLDER = "heartbeats"
LONGEST_PERIOD = 10.0  # seconds between two looks
SILENCE = 120.0  # seconds; folders that hosts share may show what is written a minute later
TOO_LITTLE_TO_TRAIN = (
  "Raise config.accumulation, lower config.batch_size, split the parameters by config.mesh.fsdp, "
  "or set config.model.remat."
)
LOOKS = 4  # at the others, from a failure to the sentence that says who is silent


class Sign(NamedTuple):
  """What one process last told of itself.

  Attributes:
    beats: how far it was (all processes beat in the same places); 0: not heard of.
    words: where it runs and what it did.
    since: when this was new, of the monotonic clock.
    times: how often there was something new; 1: it may be of an earlier run.
  """

  beats: int
  words: str
  since: float
  times: int


def of_run(stall_seconds: float, folder: pathlib.Path) -> "Watchdog":
  """The watchdog of this process of a run, whose config.stall_seconds is given."""
  return Watchdog(
    folder,
    limit=stall_seconds,
    silence=min(stall_seconds, SILENCE),
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
    self._ending = threading.Lock()
    self._looks = 0
    self._heard: dict[int, tuple[str, Sign]] = {}  # by process: its file, and what that says
    self._beats = 0
    self.beat("the start")

  def __enter__(self):
    threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
    if self._processes > 1:
      aborts.before(self._aborted)
      threading.Thread(target=self._correspond, name="heartbeats", daemon=True).start()
    return self

  def __exit__(self, error, *_):
    self._done.set()
    if error is None:  # One that ended with an error shall be missed.
      with contextlib.suppress(OSError):  # The folder may be gone; the run has come to its end.
        (self._folder / str(self._process)).unlink()

  def beat(self, doing: str):
    """The run has got as far as `doing`, such as "step 12"."""
    self._beats, self._doing, self._since = self._beats + 1, doing, time.monotonic()

  def _watch(self):
    while not self._done.wait(self._period):
      if 0 < self._limit < time.monotonic() - self._since:
        self._end(
          f"process {self._process} has got no further than {self._doing} for over "
          f"{self._limit:g} s (config.stall_seconds)",
          silence=self._limit / 2,
        )
      for process in self._gone():
        self._end(
          f"process {process} has not been heard of for over {self._silence:g} s",
          silence=self._silence,
        )

  def _correspond(self):
    while not self._done.is_set():
      self._tell()
      self._listen()
      self._done.wait(self._period)

  def _tell(self):
    """Writes what this process does; the count of looks shows that it still lives."""
    self._looks += 1
    words = f"{socket.gethostname()}, at {self._doing}"
    text = json.dumps(dict(looks=self._looks, beats=self._beats, words=words))
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
        told = json.loads(text)
        beats, words = int(told["beats"]), str(told["words"])
      except (FileNotFoundError, ValueError, TypeError, KeyError):  # or of an earlier release
        text, beats, words = "", 0, "not heard of"
      except OSError:  # the folder's, not the process's
        continue
      before, sign = self._heard.get(process, (None, Sign(0, "", 0.0, 0)))
      if before != text:
        sign = Sign(beats, words, time.monotonic(), sign.times + 1)
        self._heard[process] = text, sign

  def _signs(self) -> dict[int, Sign]:
    return {process: sign for process, (_, sign) in sorted(dict(self._heard).items())}

  def _gone(self) -> list[int]:
    """The processes that were heard of and no longer are, though the folder works.

    What was there at the first look may be of an earlier run; who has ended well has no file.
    """
    now, signs = time.monotonic(), self._signs()
    own = signs[self._process].since if self._process in signs else 0.0
    if not self._silence or now - own > self._silence / 2:
      return []
    return [
      process
      for process, sign in signs.items()
      if sign.times > 1 and sign.beats and now - sign.since > self._silence
    ]

  def guarded(self, function, *, too_little: str = TOO_LITTLE_TO_TRAIN):
    """Calls a function; where a computation fails in it that is shared, ends this process.

    One of the others may be gone, and JAX would wait for it.

    Args:
      function: called without arguments.
      too_little: what helps where the devices have too little memory, as a sentence.

    Raises:
      RunError: the devices have too little memory, which all of them find.
    """
    try:
      return function()
    except (jax.errors.JaxRuntimeError, ValueError) as error:
      if not hosts.is_of_others(error):
        raise
      if "RESOURCE_EXHAUSTED" in str(error):
        raise RunError(
          f"The memory of the devices does not suffice at {self._doing}. {too_little} "
          f"JAX says: {error}"
        ) from error
      if self._processes == 1:
        raise
      traceback.print_exception(error)
      self._lost(f"failed at {self._doing}: {str(error).partition(chr(10))[0]}")

  def _aborted(self):
    self._lost(f"was aborted at {self._doing}, for the reason above")

  def _lost(self, how: str):
    """Says that another process is gone, finds out which, and ends this one."""
    what = f"process {self._process} {how}"
    wait = LOOKS * self._period  # By then the others have spoken, or are silent.
    line = f"vit_jax: {what}. In {wait:.0f} s it will say who is silent."
    print(line, file=sys.stderr, flush=True)
    time.sleep(wait)
    with self._ending:  # once: a computation fails, and JAX aborts, for the same reason
      # What a living one wrote is at most two periods old, what a dead one wrote at least three.
      self._end(what, silence=(LOOKS - 1.5) * self._period)

  def _end(self, what: str, *, silence: float):
    now, signs = time.monotonic(), self._signs()
    known = [
      f"  process {process}: {sign.words}; heard {now - sign.since:.0f} s ago"
      for process, sign in signs.items()
    ]
    sentences = f"{what}. {culprit(signs, self._process, now, silence)}".strip()
    advice = "Start the same command again to go on from the last checkpoint."
    print("What every thread was doing:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    print("\n".join([f"vit_jax: {sentences} {advice}", *known]), file=sys.stderr, flush=True)
    os._exit(1)  # The main thread, or the end of JAX, would wait for what will not come.


def culprit(signs: dict[int, Sign], own: int, now: float, silence: float) -> str:
  """The sentence that says which of several processes holds the others up. "": there is but one.

  The one that has been silent for longest, if for over `silence` seconds: what it took with it fell
  silent later. Else those that are furthest behind. One that has ended well holds up nobody.
  """
  if len(signs) < 2:
    return ""
  if own not in signs or now - signs[own].since > silence:
    return "The folder of heartbeats does not answer, so who is silent is not known."
  signs = {p: sign for p, sign in signs.items() if sign.beats or sign.times == 1}
  longest = min(signs, key=lambda process: signs[process].since)
  seconds = now - signs[longest].since
  if seconds > silence:
    return f"Silent for longest: process {longest} ({signs[longest].words}; {seconds:.0f} s)."
  least, most = (function(sign.beats for sign in signs.values()) for function in (min, max))
  if least == most:
    return "No process is silent or behind the others."
  behind = [f"process {p} ({sign.words})" for p, sign in signs.items() if sign.beats == least]
  return f"Furthest behind: {', '.join(behind)}."
