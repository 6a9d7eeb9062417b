"""Writes metrics to metrics.jsonl, TensorBoard events and the console; first process only."""

import collections
import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from vit_jax.process import text
from vit_jax.process.progress import Line, speed_in_words
from vit_jax.process.text import h_mm_ss, one_line
from vit_jax.storage import files
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.base import Retry, UnreachableError, reading
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import METRICS, PICTURES


class Follower:
  """Gets all that a `Writer` writes; its methods return at once and raise nothing."""

  def write(self, step: int, metrics: Mapping[str, float]):
    """Gets the metrics of a line."""

  def picture(self, step: int, name: str, png: bytes):
    """Gets a picture, as `Writer.picture` does."""

  def close(self):
    """Called once, when the writer is closed, also after an error; may take its time."""


class Writer:
  """Writes metrics to metrics.jsonl and TensorBoard, and lines to the console.

  TensorBoard's events are written directly. tensorboardX would use a thread; on a full disk the
  thread dies, and the run would wait for it for ever.

  Attributes:
    lines: number of lines of metrics.jsonl so far, with the waiting ones.
    reached: the last step in metrics.jsonl before steps were dropped; 0: none.
  """

  def __init__(self, workdir: Path, *, start_step: int, retry: Retry | None = None, lines: int = 0):
    """Opens the files of `workdir` and drops metrics of steps after `start_step`.

    A killed run may have written metrics of steps after its last checkpoint. The resumed run writes
    those steps again, and repeats an evaluation of `start_step` that lacks a set.

    Args:
      workdir: the folder of the run.
      start_step: step after which this process continues.
      retry: how long failed writes wait in memory, to be tried again; None: not at all.
      lines: number of lines when the checkpoint was saved; warns if the file has fewer.
    """
    from vit_jax.storage import events  # slow, and readers of metrics do not need it

    self._workdir = workdir
    self._retry = retry or Retry(0.0)
    self._waiting: collections.deque[Callable[[], None]] = collections.deque()
    self._followers: list[Follower] = []
    self._event = events.scalars
    self._image = events.picture
    self._line = Line(sys.stdout)
    with workdirs.writing(workdir):
      self.lines, damage, self.reached = keep_until(workdir / METRICS, start_step)
      self._metrics = files.append(workdir / METRICS)
      name = events.name_after(path.name for path in files.matching(workdir, f"{events.NAME}.*"))
      self._events = files.append(workdir / name)
      self._events.add(events.beginning(start_step))
    if damage:
      self.say(damage)
    if self.lines < lines:
      self.say(
        f"{workdir / METRICS} has {self.lines:,} line(s) up to step {start_step:,}, where the "
        f"checkpoint was saved with {lines:,}: it is an older copy, or lines were lost. The run "
        "goes on as it would have, but its curves lack them; if you have the newer file, stop the "
        "run, put it back and start again."
      )

  def follow(self, follower: Follower):
    """From now on, the follower gets all that is written."""
    self._followers.append(follower)

  def write(self, step: int, metrics: dict[str, float]):
    """Adds the metrics of `step` to metrics.jsonl and TensorBoard.

    Raises:
      RunError: they cannot be written, and there is no time left to try again.
    """
    line = json.dumps({"step": step} | text.finite(dict(metrics))) + "\n"
    event = self._event(step, metrics)
    self.lines += 1
    for follower in self._followers:
      follower.write(step, metrics)
    self._add(lambda: self._metrics.add(line.encode()), lambda: self._events.add(event))

  def picture(self, step: int, name: str, png: bytes):
    """Writes a picture to WORKDIR/pictures/NAME/STEP.png and to TensorBoard.

    Args:
      step: of the evaluation that made it.
      name: such as "val/patches"; the slash makes a folder.
      png: the file.

    Raises:
      RunError: as `write`.
    """
    path = self._workdir / PICTURES / name / f"{step:08d}.png"
    event = self._image(step, name, png)
    for follower in self._followers:
      follower.picture(step, name, png)

    def write():
      files.make_folder(path.parent)
      files.write_bytes(path, png)

    self._add(write, lambda: self._events.add(event))

  def complete(self, alive: Callable[[], None] = lambda: None):
    """Writes all waiting metrics, and makes sure that everything is on the disk.

    Args:
      alive: called every second while it waits for the next try.

    Raises:
      RunError: writing still fails, and there is no time left to try again.
    """
    self._add(lambda: self._metrics.flush(), lambda: self._events.flush())
    while self._waiting:
      self._retry.wait(alive)
      self._add()

  def _add(self, *writes):
    """Does the waiting writes, then these; if one fails, it and the following ones wait."""
    workdirs.check_held(self._workdir)
    self._waiting += writes
    failing = self._retry.failing
    try:
      while self._waiting:
        self._waiting[0]()
        self._waiting.popleft()
    except OSError as error:
      if not self._retry.failed():
        with workdirs.writing(self._workdir):
          raise
      if not failing:
        waiting = (
          f"Metrics cannot be written to {self._workdir} ({error}). They wait in memory, and are "
          f"tried again for {self._retry.seconds:g} s (config.checkpoint.retry_seconds)."
        )
        self.say(one_line(waiting))
    else:
      self._retry.succeeded()

  def progress(self, line: str):
    """Shows a progress line; on a terminal it replaces the previous one."""
    self._line.show(line)

  def say(self, line: str):
    """Shows lines that stay; names in them must be on one line, as by `one_line`."""
    self._line.say(line)

  def close(self):
    """Closes the followers and the files; errors are ignored."""
    for follower in self._followers:
      follower.close()
    self._metrics.close()
    self._events.close()


class NoWriter(Follower):
  """The writer of every process but the first: does nothing."""

  lines = 0

  def follow(self, follower):
    """Has nothing to follow."""

  def complete(self, alive=None):
    """Has nothing to complete."""

  def progress(self, line):
    """Ignores the line."""

  def say(self, line):
    """Ignores the line."""


class Kept(NamedTuple):
  """What `keep_until` has done.

  Attributes:
    lines: the number of lines that are kept.
    damage: a sentence on the damage; "" if there was none.
    reached: the last step before lines were dropped; 0: none.
  """

  lines: int
  damage: str
  reached: int


def keep_until(path: Path, step: int) -> Kept:
  """Drops the lines of steps after `step`, and a truncated last line.

  Also drops the line of an evaluation at `step` that lacks a set, because it is repeated. Moves
  damaged lines, or a file that cannot be read, to PATH.damaged; the run continues.
  """
  aside = path.with_name(f"{path.name}.damaged")
  lines = 0
  reached = 0
  damaged_numbers = []
  try:
    with files.atomic_write(path) as partial, open(partial, "wb") as kept:
      for number, (line, metrics) in enumerate(lines_of(path), 1):
        if metrics is None:
          with contextlib.closing(files.append(aside)) as damaged:
            damaged.add(line)
          damaged_numbers.append(number)
          continue
        reached = max(reached, metrics["step"])
        if _is_kept(metrics, step):
          kept.write(line)
          lines += 1
  except UnreadableError as error:
    place = files.set_aside(path, aside)
    damage = f"{path} cannot be read ({error}); it was moved to {place}; a new file is started."
    return Kept(0, damage, 0)
  if not damaged_numbers:
    return Kept(lines, "", reached)
  where = f"the first in line {damaged_numbers[0]}; they are now in {aside}"
  damage = f"{path} had {len(damaged_numbers)} damaged line(s), {where}."
  return Kept(lines, damage, reached)


def _is_kept(metrics: Mapping, step: int) -> bool:
  """Whether a run that continues after `step` keeps this line."""
  if metrics["step"] == step:
    return not unscored(metrics)
  return metrics["step"] < step


def unscored(metrics: Mapping) -> list[str]:
  """The evaluations that failed, by a line of metrics."""
  ends = f"/{UNSCORED}"
  return [key.removesuffix(ends) for key in metrics if key.endswith(ends)]


class UnreadableError(Exception):
  """A file of metrics cannot be read at all; the message says why."""


ACCURACY = "training/accuracy"  # only of objectives that measure it
UNSCORED = "unscored"  # NAME/unscored is 1 if the evaluation NAME failed
MAX_LINE = 2**20  # bytes; a line has about a thousand


def lines_of(path: Path) -> Iterator[tuple[bytes, dict | None]]:
  """Yields each line of a metrics file as bytes, with its parsed contents; None if damaged.

  A missing file has no lines. A truncated last line is left out. A line that is far too long is
  returned in pieces.

  Raises:
    UnreadableError: the file cannot be read.
    UnreachableError: the file cannot be read now, but perhaps later.
  """
  if not files.exists(path):
    return
  try:
    with reading(path), io.BufferedReader(files.open_file(path)) as file:
      while True:
        line = file.readline(MAX_LINE)
        if not line.endswith(b"\n") and len(line) < MAX_LINE:
          return
        yield line, metrics_of(line)
  except UnreachableError:
    raise
  except OSError as error:
    raise UnreadableError(error.strerror) from error


def metrics_of(line: bytes) -> dict | None:
  """The contents of a line, a step and metrics by name; None if it is not a line of metrics."""
  try:
    metrics = json.loads(line.decode())
  except (ValueError, RecursionError):
    return None
  if not isinstance(metrics, dict) or not all(map(is_metric, metrics.values())):
    return None
  step = metrics.get("step")
  if not isinstance(step, int) or step < 0:
    return None
  return metrics


def is_metric(value) -> bool:
  """Whether a line can hold this value: a number, or a string of `text.finite`."""
  if isinstance(value, str):
    return value in text.STRINGS
  return type(value) is float or (type(value) is int and abs(value) < 2**63)


def read_lines(workdir: Path) -> list[dict]:
  """The parsed lines of a workdir's metrics.jsonl, in order, without damaged ones.

  Empty if the file is missing or unreadable; the resumed run reports an unreadable file.
  """
  with contextlib.suppress(UnreadableError):
    return [metrics for _, metrics in lines_of(workdir / METRICS) if metrics is not None]
  return []


def progress_line(step: int, total: int, metrics: dict[str, float]) -> str:
  """One line for the console, with the training accuracy if it is measured."""
  accuracy = ""
  if ACCURACY in metrics:
    accuracy = f"accuracy {metrics[ACCURACY]:.1%}  "
  return (
    f"step {step}/{total}  loss {metrics['loss']:.4f}  {accuracy}"
    f"lr {metrics['learning_rate']:.2e}  "
    f"{speed_in_words(metrics['images_per_second'])}  ETA {h_mm_ss(metrics['eta_seconds'])}"
  )
