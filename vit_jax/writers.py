"""Where metrics go: metrics.jsonl, TensorBoard events, the console. First process only."""

import contextlib
import json
import math
import os
import pathlib
import socket
import struct
import sys
import time

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import Summary

from vit_jax import workdir as workdirs

METRICS = "metrics.jsonl"


class Writer:
  """Writes one line of metrics to all three places.

  TensorBoard's events are written here and now: tensorboardX would use a thread, which dies of a
  full disk and leaves the run waiting for it for ever.
  """

  def __init__(self, workdir: pathlib.Path, *, start_step: int, patient: bool = False):
    """Opens the files of `workdir`; what they hold of steps after `start_step` is dropped.

    A run that was killed has written metrics of steps after its last checkpoint; they come again.

    Args:
      workdir: the folder of the run.
      start_step: step after which this process goes on.
      patient: what cannot be written waits, to be tried again with the next line and at the end;
        otherwise it is an error at once.
    """
    self._workdir, self._patient = workdir, patient
    self._live = sys.stdout.isatty()
    with workdirs.writing(workdir):
      keep_until(workdir / METRICS, start_step)
      self._metrics = Appender(workdir / METRICS)
      name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}"
      self._events = Appender(workdir / name)
      self._events.add(record(Event(wall_time=time.time(), file_version="brain.Event:2")))
      if start_step:
        again = SessionLog(status=SessionLog.START)
        self._events.add(
          record(Event(wall_time=time.time(), step=start_step + 1, session_log=again))
        )

  def write(self, step: int, metrics: dict[str, float]):
    """Adds the metrics of `step` to metrics.jsonl and TensorBoard.

    Raises:
      RunError: they cannot be written, and the writer is not patient.
    """
    line = json.dumps({"step": step} | {k: as_json(v) for k, v in metrics.items()}) + "\n"
    values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
    event = Event(wall_time=time.time(), step=step, summary=Summary(value=values))
    self._add(line.encode(), record(event), patient=self._patient)

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

  def complete(self):
    """Writes what has waited, and sees all of it onto the disk.

    Raises:
      RunError: it still cannot be written.
    """
    self._add(b"", b"", patient=False)
    with workdirs.writing(self._workdir):
      self._metrics.flush()
      self._events.flush()

  def progress(self, line: str):
    """Shows the line of the moment: on a terminal it replaces the one before."""
    print(f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", flush=True)

  def say(self, line: str):
    """Shows a line that stays."""
    print(f"\r\x1b[K{line}" if self._live else line, flush=True)

  def close(self):
    """Closes the files, whatever became of them."""
    self._metrics.close()
    self._events.close()


class Appender:
  """A file that grows by whole pieces only; a piece that cannot be written waits for the next."""

  def __init__(self, path: pathlib.Path):
    """Opens the file, or makes it."""
    self._path = path
    self._file = path.open("ab", buffering=0)
    self._waiting = b""

  def add(self, piece: bytes):
    """Writes what waits and then the piece, or nothing.

    Raises:
      OSError: it cannot be written, or the file is no longer where it was.
    """
    self._waiting += piece
    self._check_place()
    end = os.fstat(self._file.fileno()).st_size
    try:
      done = 0
      while done < len(self._waiting):
        done += self._file.write(self._waiting[done:])
    except OSError:
      self._file.truncate(end)
      raise
    self._waiting = b""

  def _check_place(self):
    # An open file outlives its name: a run whose folder was removed would write to nowhere.
    if not os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path)):
      raise FileNotFoundError(f"{self._path} was replaced by another file")

  def flush(self):
    """Returns once the file is on the disk.

    Raises:
      OSError: it cannot be brought there; shared file systems may say only now that they are full.
    """
    os.fsync(self._file.fileno())

  def close(self):
    """Closes the file; what goes wrong then hides no error that may be under way."""
    with contextlib.suppress(OSError):
      self._file.close()


def record(event: Event) -> bytes:
  """An event as a record of TensorFlow's: length, its sum, data, its sum."""
  data = event.SerializeToString()
  length = struct.pack("<Q", len(data))
  summed = [piece + struct.pack("<I", masked_crc32c(piece)) for piece in (length, data)]
  return b"".join(summed)


class NoWriter:
  """The writer of every process but the first: does nothing."""

  def write(self, step, metrics):
    """Ignores the metrics."""

  def complete(self):
    """Has nothing to complete."""

  def progress(self, line):
    """Ignores the line."""

  def say(self, line):
    """Ignores the line."""

  def close(self):
    """Has nothing to close."""


def as_json(value: float) -> float | int | str:
  """A number as JSON can hold it: NaN and infinities, which JSON lacks, as words."""
  return value if math.isfinite(value) else str(value)


def keep_until(path: pathlib.Path, step: int):
  """Drops the lines of steps after `step`, and a last line that a crash cut short."""
  if not path.exists():
    return
  kept = [
    line
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
    if line.endswith("\n") and json.loads(line)["step"] <= step
  ]
  temporary = path.with_suffix(".tmp")
  temporary.write_text("".join(kept), encoding="utf-8")
  temporary.replace(path)


def read(workdir: pathlib.Path) -> list[dict]:
  """The lines of a workdir's metrics.jsonl, in order; empty where there are none."""
  path = workdir / METRICS
  return (
    [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if path.exists()
    else []
  )


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
