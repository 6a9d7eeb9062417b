"""Ends a run that makes no progress, and names the process that holds it up.

When one of many hosts stalls, the others wait in a collective forever. Therefore each process has
two more threads. One watches the progress of the process. The other writes the progress to
WORKDIR/heartbeats/PROCESS, in a folder that all hosts share, and reads the files of the others.
There are two threads because access to a shared folder can hang.

Each thread that reads or decodes an image notes which one, so that a slow one can be named.
"""

import contextlib
import faulthandler
import json
import math
import operator
import os
import pathlib
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

import jax

from vit_jax.config import RunError
from vit_jax.devices.hosts import before_abort, is_of_others
from vit_jax.process import agreement, machine
from vit_jax.storage import files

MAX_SHOWN = 8

_begun: dict[int, tuple[float, Callable[[int], str], int]] = {}  # by thread


def begin_image(name: Callable[[int], str], row: int) -> None:
  """Notes that this thread begins with the image that `name(row)` names.

  The name is only asked for in `images_at_work`, and must not need to read anything.
  """
  _begun[threading.get_ident()] = time.monotonic(), name, row


def end_image() -> None:
  """Notes that this thread is done with its image."""
  del _begun[threading.get_ident()]


def images_at_work() -> list[str]:
  """A line for each image that is in work, the longest first."""
  now = time.monotonic()
  begun = sorted(_begun.values(), key=operator.itemgetter(0))
  return [
    f"  {_named(name, row)} has been read or decoded for {now - since:.0f} s"
    for since, name, row in begun[:MAX_SHOWN]
  ]


def _named(name, row):
  try:
    return name(row)
  except Exception:  # the last words must be spoken
    return f"image {row}"


FOLDER = "heartbeats"
MAX_BYTES = 2**16  # of a heartbeat file
MAX_PERIOD = 10.0  # seconds between two checks
SILENCE = 120.0  # seconds; a shared folder may show new content a minute late
TOO_LITTLE_TO_TRAIN = (
  "Raise config.accumulation, lower config.batch_size, split the parameters by config.mesh.fsdp, "
  "a ViT's heads by config.mesh.model, or set config.model.remat; config.verify_every=0 needs one "
  "state less."
)
LOOKS = 4  # periods to wait between a failure and the report of which process is silent


class Heartbeat(NamedTuple):
  """The last heartbeat of one process.

  Attributes:
    beats: the progress of the process (all processes beat at the same places); 0: no heartbeat yet.
    words: the host, and what the process was doing; empty until `_told` if they are in a bucket.
    since: when this process first saw the heartbeat, or first could see it again, by the monotonic
      clock.
    times: how many different heartbeats were seen; a single one may be from an earlier run.
    text: the heartbeat as it was written, or the version of its object in a bucket.
  """

  beats: int
  words: str
  since: float = 0.0
  times: int = 0
  text: str = ""


NO_HEARTBEAT = Heartbeat(0, "no heartbeat")


def watching(stall_seconds: float, folder: pathlib.Path) -> "Watchdog":
  """The watchdog for this process of a run; `stall_seconds` is the limit."""
  advice = "Start the same command again to go on from the last checkpoint."
  return _of_folder(stall_seconds, folder / FOLDER, advice)


def of_evaluation(stall_seconds: float, folder: pathlib.Path) -> "Watchdog":
  """Like `watching`, but in a folder of its own: others may train or evaluate in the workdir."""
  name = agreement.broadcast_str(lambda: secrets.token_hex(4))
  advice = "Start the same command again to evaluate anew."
  return _of_folder(stall_seconds, folder / FOLDER / f"evaluation-{name}", advice)


def _of_folder(stall_seconds, folder, advice):
  return Watchdog(
    folder,
    advice=advice,
    limit=stall_seconds,
    silence=SILENCE if stall_seconds else 0.0,
    process=jax.process_index(),
    processes=jax.process_count(),
  )


class Watchdog:
  """A context manager around the loop, which calls `beat` after each piece of progress."""

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    limit: float,
    silence: float,
    process: int,
    processes: int,
    advice: str = "",
  ):
    """Makes a watchdog, which begins to watch when the context is entered.

    Args:
      folder: for the heartbeats of all processes.
      limit: seconds without a beat after which this process is ended; 0: never.
      silence: seconds without a heartbeat after which another process counts as gone, and this
        process is ended; 0: never.
      process: the index of this process.
      processes: the number of processes.
      advice: a sentence on what to do after this process was ended.
    """
    self._folder = folder
    self._advice = advice
    self._limit = limit or math.inf
    self._silence = silence or math.inf
    self._process = process
    self._processes = processes
    self._period = min(self._limit / 4, self._silence / 8, MAX_PERIOD)
    self._done = threading.Event()
    self._heartbeats = threading.Thread(target=self._correspond, name="heartbeats", daemon=True)
    self._ending = threading.Lock()
    self._looks = 0
    self._signs: dict[int, Heartbeat] = {}  # by process
    self._beats = 0
    self.beat("the start")

  def __enter__(self):
    threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
    if self._processes > 1:
      before_abort(self._aborted)
      self._heartbeats.start()
    return self

  def __exit__(self, error, *_):
    self._done.set()
    # After an error, leave the file, so that the other hosts notice.
    if error is None and self._processes > 1:
      self._heartbeats.join(MAX_PERIOD)  # or it might write the file again
      with contextlib.suppress(OSError):  # The folder may be gone; the run is done anyway.
        files.remove(self._folder / str(self._process))
        if not files.matching(self._folder):
          files.remove(self._folder)

  def beat(self, doing: str):
    """Notes progress: the run has reached `doing`, such as "step 12"."""
    self._beats += 1
    self._doing = doing
    self._since = time.monotonic()

  def _watch(self):
    while not self._done.wait(self._period):
      if time.monotonic() - self._since > self._limit:
        self._end(
          f"process {self._process} has made no progress since {self._doing} for over "
          f"{self._limit:g} s (config.stall_seconds)",
          silence=self._limit / 2,
        )
      for process in self._gone():
        self._end(
          f"process {process} has sent no heartbeat for over {self._silence:g} s",
          silence=self._silence,
        )

  def _correspond(self):
    while not self._done.is_set():
      self._tell()
      self._listen()
      self._done.wait(self._period)

  def _tell(self):
    """Writes the progress of this process; the rising count of looks shows that it is alive."""
    self._looks += 1
    words = f"{socket.gethostname()}, at {self._doing}"
    text = json.dumps(dict(looks=self._looks, beats=self._beats, words=words))
    try:
      files.make_folder(self._folder)
      files.write_text(self._folder / str(self._process), text)
    except OSError:  # The run writes to the same folder, and will report what is wrong with it.
      pass

  def _listen(self):
    """Reads the heartbeat of every process, and notes when it changed.

    While the own heartbeat does not come back, the folder is out of reach, and the others' silence
    says nothing about them. It counts anew once the own one is back.
    """
    heard = self._heard()
    now = time.monotonic()
    signs = dict(self._signs)
    for process, sign in enumerate(heard):
      last = signs.get(process)
      if sign and (not last or last.text != sign.text):
        times = last.times + 1 if last else 1
        signs[process] = sign._replace(since=now, times=times)
    back = self._process in signs and signs[self._process].since == now
    if back and self._out_of_reach(now):
      signs = {process: sign._replace(since=now) for process, sign in signs.items()}
    self._signs = signs  # at once, because the other thread reads it

  def _heard(self) -> list[Heartbeat | None]:
    """The heartbeat of every process; None where it cannot be read.

    In a bucket one listing shows which have changed: if each of n processes read all, their
    requests would grow with n^2.
    """
    try:
      stamps = files.listed_stamps(self._folder)
    except OSError:
      return [None] * self._processes
    if stamps is None:
      return [self._read(process) for process in range(self._processes)]
    versions = [stamps.get(str(process)) for process in range(self._processes)]
    return [Heartbeat(1, "", text=str(x)) if x else NO_HEARTBEAT for x in versions]

  def _told(self) -> dict[int, Heartbeat]:
    """The heartbeats by process; reads what `_heard` left out, for MAX_PERIOD at the most."""
    signs = dict(sorted(self._signs.items()))
    left = [process for process, sign in signs.items() if not sign.words]

    def read():
      for process, sign in zip(left, files.at_once(self._folder, self._read, left), strict=True):
        if sign:
          signs[process] = signs[process]._replace(beats=sign.beats, words=sign.words)

    if left:
      reading = threading.Thread(target=read, daemon=True)
      reading.start()
      reading.join(MAX_PERIOD)
    return signs

  def _read(self, process) -> Heartbeat | None:
    """What a process has written; None if the folder cannot be read."""
    try:
      text = files.read_bytes(self._folder / str(process), most=MAX_BYTES).decode()
      told = json.loads(text)
      return Heartbeat(int(told["beats"]), str(told["words"]), text=text)
    except (FileNotFoundError, ValueError, TypeError, KeyError):  # no file, or no heartbeat
      return NO_HEARTBEAT
    except OSError:
      return None

  def _out_of_reach(self, now: float) -> bool:
    """Whether the own heartbeat has not come back for too long to judge the others."""
    mine = self._signs.get(self._process)
    return not mine or now - mine.since > self._silence / 2

  def _gone(self) -> list[int]:
    """The processes whose heartbeat has stopped; [] if the folder is out of reach.

    The first heartbeat seen may be from an earlier run. A process that ended well leaves no file.
    """
    now = time.monotonic()
    if self._out_of_reach(now):
      return []
    return [
      process
      for process, sign in self._signs.items()
      if sign.times > 1 and sign.beats and now - sign.since > self._silence
    ]

  @contextlib.contextmanager
  def guarded(self, *, too_little: str = TOO_LITTLE_TO_TRAIN):
    """Ends this process if a shared computation inside fails.

    Another process may be gone, and JAX would wait for it.

    Args:
      too_little: a sentence with the remedy for too little memory.

    Raises:
      RunError: the devices have too little memory; every process raises it.
    """
    try:
      yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
      if not is_of_others(error):
        raise
      if "RESOURCE_EXHAUSTED" in str(error):
        limit = ""
        if jax.default_backend() == "cpu":
          limit = machine.of_memory()
        raise RunError(
          f"The devices ran out of memory at {self._doing}. {limit}{too_little} JAX says: {error}"
        ) from error
      if self._processes == 1:
        raise
      traceback.print_exception(error)
      self._lost(f"failed at {self._doing}: {str(error).partition(chr(10))[0]}")

  def _aborted(self):
    self._lost(f"was aborted at {self._doing}, for the reason above")

  def _lost(self, how: str):
    """Waits to find out which other process is gone, reports it, and ends this process."""
    what = f"process {self._process} {how}"
    wait = LOOKS * self._period  # enough for each living process to write another heartbeat
    line = f"vit_jax: {what}. In {wait:.0f} s it will say which process is silent."
    print(line, file=sys.stderr, flush=True)
    time.sleep(wait)
    with self._ending:  # only once: one cause can fail a computation and make JAX abort
      # The heartbeat of a living process is at most two periods old, of a dead one at least three.
      self._end(what, silence=(LOOKS - 1.5) * self._period)

  def _end(self, what: str, *, silence: float):
    now = time.monotonic()
    signs = self._told()
    known = [
      f"  process {process}: {sign.words}; heard {now - sign.since:.0f} s ago"
      for process, sign in signs.items()
    ]
    sentences = f"{what}. {culprit(signs, self._process, now, silence)}".strip()
    print("What every thread was doing:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(all_threads=True)
    lines = [f"vit_jax: {sentences} {self._advice}", *known, *_images()]
    print("\n".join(lines), file=sys.stderr, flush=True)
    os._exit(1)  # A normal exit would wait for the main thread, or for JAX, without end.


def _images() -> list[str]:
  """Lines that name the images that this process was reading."""
  images = images_at_work()
  if not images:
    return []
  return ["Images in work; remove one that is here again after the next start:", *images]


def culprit(signs: dict[int, Heartbeat], process: int, now: float, silence: float) -> str:
  """A sentence that names the process that holds the others up; "" for a run of one process.

  Names the process that has been silent for longest, if for over `silence` seconds: processes that
  it stalled fell silent later. Otherwise names the processes that are furthest behind. A process
  that ended well holds up nobody. The heartbeat of `process`, which asks, must be recent.
  """
  if len(signs) < 2:
    return ""
  if process not in signs or now - signs[process].since > silence:
    return "The folder of heartbeats does not answer, so the silent process is not known."
  signs = {p: sign for p, sign in signs.items() if sign.beats or sign.times == 1}
  longest = min(signs, key=lambda process: signs[process].since)
  seconds = now - signs[longest].since
  if seconds > silence:
    return f"Silent for longest: process {longest} ({signs[longest].words}; {seconds:.0f} s)."
  least = min(sign.beats for sign in signs.values())
  most = max(sign.beats for sign in signs.values())
  if least == most:
    return "No process is silent or behind the others."
  behind = [f"process {p} ({sign.words})" for p, sign in signs.items() if sign.beats == least]
  return f"Furthest behind: {', '.join(behind)}."
