"""Writes metrics to metrics.jsonl, TensorBoard events and the console; first process only."""

import contextlib
import json
import os
import pathlib
import socket
import sys
import time
from collections.abc import Iterator

from vit_jax.process import json_text
from vit_jax.storage import files
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.files import Appender
from vit_jax.storage.workdir import METRICS, PICTURES


class Writer:
  """Writes metrics to metrics.jsonl and TensorBoard, and lines to the console.

  TensorBoard's events are written directly. tensorboardX would use a thread; on a full disk the
  thread dies, and the run would wait for it for ever.
  """

  def __init__(self, workdir: pathlib.Path, *, start_step: int, patient: bool = False):
    """Opens the files of `workdir` and drops metrics of steps after `start_step`.

    A killed run has already written metrics of steps after its last checkpoint. The resumed run
    writes those steps again.

    Args:
      workdir: the folder of the run.
      start_step: step after which this process goes on.
      patient: keep a line that cannot be written, and try again with the next line and at the end;
        otherwise raise an error at once.
    """
    from vit_jax.storage import events  # slow, and readers of metrics do not need it

    self._workdir, self._patient = workdir, patient
    self._event, self._image = events.figures, events.picture
    self._live = sys.stdout.isatty()
    with workdirs.writing(workdir):
      damage = keep_until(workdir / METRICS, start_step)
      self._metrics = Appender(workdir / METRICS)
      name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
      self._events = Appender(workdir / name)
      self._events.add(events.beginning(start_step))
    if damage:
      self.say(damage)

  def write(self, step: int, metrics: dict[str, float]):
    """Adds the metrics of `step` to metrics.jsonl and TensorBoard.

    Raises:
      RunError: they cannot be written, and the writer is not patient.
    """
    line = json.dumps({"step": step} | json_text.finite(dict(metrics))) + "\n"
    self._add(line.encode(), self._event(step, metrics), patient=self._patient)

  def _add(self, line, event, *, patient):
    try:
      with workdirs.writing(self._workdir):
        try:
          self._metrics.add(line)
        finally:
          self._events.add(event)
    except workdirs.WriteError as error:
      if not patient:
        raise
      self.say(f"{error} The metrics wait in memory.")

  def picture(self, step: int, name: str, png: bytes):
    """Writes a picture to WORKDIR/pictures/NAME/STEP.png and to TensorBoard.

    Args:
      step: of the evaluation that made it.
      name: such as "val/patches"; the slash makes a folder.
      png: the file.

    Raises:
      RunError: it cannot be written, and the writer is not patient.
    """
    path = self._workdir / PICTURES / name / f"{step:08d}.png"
    try:
      with workdirs.writing(self._workdir):
        files.make_folder(path.parent)
        files.write_bytes(path, png)
        self._events.add(self._image(step, name, png))
    except workdirs.WriteError as error:
      if not self._patient:
        raise
      self.say(f"{error} A picture is missing.")

  def complete(self):
    """Writes the waiting lines and makes sure that everything is on the disk.

    Raises:
      RunError: they still cannot be written.
    """
    self._add(b"", b"", patient=False)
    with workdirs.writing(self._workdir):
      self._metrics.flush()
      self._events.flush()

  def progress(self, line: str):
    """Shows a progress line; on a terminal it replaces the previous one."""
    print(f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", flush=True)

  def say(self, line: str):
    """Shows a line that stays."""
    print(f"\r\x1b[K{line}" if self._live else line, flush=True)

  def close(self):
    """Closes the files; errors are ignored."""
    self._metrics.close()
    self._events.close()


class NoWriter:
  """The writer of every process but the first: does nothing."""

  def write(self, step, metrics):
    """Ignores the metrics."""

  def picture(self, step, name, png):
    """Ignores the picture."""

  def complete(self):
    """Has nothing to complete."""

  def progress(self, line):
    """Ignores the line."""

  def say(self, line):
    """Ignores the line."""

  def close(self):
    """Has nothing to close."""


def keep_until(path: pathlib.Path, step: int) -> str:
  """Drops the lines of steps after `step`, and a last line that a crash cut short.

  Damaged lines are moved to PATH.damaged, and so is a file that cannot be read; the run goes on.

  Returns:
    A sentence that describes the damage; empty if there was none.
  """
  aside, count, first = path.with_name(f"{path.name}.damaged"), 0, 0
  try:
    with files.whole(path) as partial, open(partial, "wb") as kept:
      for number, (line, figures) in enumerate(lines_of(path), 1):
        if figures is not None and figures["step"] <= step:
          kept.write(line)
        elif figures is None:
          with contextlib.closing(Appender(aside)) as damaged:
            damaged.add(line)
          count, first = count + 1, first or number
  except UnreadableError as error:
    place = files.set_aside(path, aside)
    return f"{path} cannot be read ({error}); it was moved to {place}, and a new file is started."
  if not count:
    return ""
  return f"{path} had {count} damaged line(s), the first in line {first}; they are now in {aside}."


class UnreadableError(Exception):
  """A file of metrics cannot be read at all; the message says why."""


LONGEST_LINE = 2**20  # bytes; a line has about a thousand


def lines_of(path: pathlib.Path) -> Iterator[tuple[bytes, dict | None]]:
  """Yields each line of a metrics file as bytes with its parsed contents, None if it is damaged.

  A missing file has no lines. A last line that a crash cut short is left out. A line that is far
  too long is returned in pieces.

  Raises:
    UnreadableError: the file cannot be read.
  """
  if not os.path.lexists(path):
    return
  if path.exists() and not path.is_file():  # opening a pipe would wait
    raise UnreadableError("it is not a file")
  try:
    with path.open("rb") as file:
      while (line := file.readline(LONGEST_LINE)).endswith(b"\n") or len(line) == LONGEST_LINE:
        yield line, figures_of(line)
  except OSError as error:
    raise UnreadableError(error.strerror) from error


def figures_of(line: bytes) -> dict | None:
  """The contents of a line, a step and figures by name; None if it is not a line of metrics."""
  try:
    figures = json.loads(line.decode())
  except (ValueError, RecursionError):
    return None
  if not isinstance(figures, dict) or not all(map(is_figure, figures.values())):
    return None
  step = figures.get("step")
  return figures if isinstance(step, int) and step >= 0 else None


def is_figure(value) -> bool:
  """Whether this value can stand in a line: a number, or a string of `json_text.finite`."""
  if isinstance(value, str):
    return value in json_text.STRINGS
  return type(value) is float or (type(value) is int and abs(value) < 2**63)


def read(workdir: pathlib.Path) -> list[dict]:
  """The lines of a workdir's metrics.jsonl, in order, without damaged ones.

  Empty if the file is missing or cannot be read; the run that resumes reports such a file.
  """
  with contextlib.suppress(UnreadableError):
    return [figures for _, figures in lines_of(workdir / METRICS) if figures is not None]
  return []


def progress_line(step: int, total: int, metrics: dict[str, float]) -> str:
  """One line for the console."""
  return (
    f"step {step}/{total}  loss {metrics['loss']:.4f}  lr {metrics['learning_rate']:.2e}  "
    f"{metrics['images_per_second']:.0f} images/s  ETA {clock(metrics['eta_seconds'])}"
  )


def clock(seconds: float) -> str:
  """Seconds as h:mm:ss."""
  minutes, seconds = divmod(round(seconds), 60)
  return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"
