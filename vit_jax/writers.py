"""Where metrics go: metrics.jsonl, TensorBoard events, the console. First process only."""

import json
import math
import os
import pathlib
import sys

import tensorboardX

METRICS = "metrics.jsonl"


class Writer:
  """Writes one line of metrics to all three places."""

  def __init__(self, workdir: pathlib.Path, *, start_step: int):
    """Opens the files of `workdir`; what they hold of steps after `start_step` is dropped.

    A run that was killed has written metrics of steps after its last checkpoint; they come again.
    """
    self._path = workdir / METRICS
    keep_until(self._path, start_step)
    self._file = self._path.open("a", encoding="utf-8")
    self._events = tensorboardX.SummaryWriter(
      str(workdir), purge_step=start_step + 1 if start_step else None, write_to_disk=True
    )
    self._live = sys.stdout.isatty()

  def write(self, step: int, metrics: dict[str, float]):
    """Adds the metrics of `step` to metrics.jsonl and TensorBoard."""
    self._file.write(
      json.dumps({"step": step} | {k: as_json(v) for k, v in metrics.items()}) + "\n"
    )
    self._file.flush()
    for name, value in metrics.items():
      self._events.add_scalar(name, value, step)

  def progress(self, line: str):
    """Shows the line of the moment: on a terminal it replaces the one before."""
    print(f"\r{line}\x1b[K" if self._live else line, end="" if self._live else "\n", flush=True)

  def say(self, line: str):
    """Shows a line that stays."""
    print(f"\r\x1b[K{line}" if self._live else line, flush=True)

  def close(self):
    """Flushes everything to disk."""
    os.fsync(self._file.fileno())
    self._file.close()
    self._events.close()


class NoWriter:
  """The writer of every process but the first: does nothing."""

  def write(self, step, metrics):
    """Ignores the metrics."""

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
