"""How far some work is, on one line: rewritten on a terminal, and cleared at its end."""

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from vit_jax.process import machine
from vit_jax.process.console import clearing
from vit_jax.process.text import h_mm_ss, one_line, rounded

PERIOD = 30.0  # seconds between two lines where lines stay
REDRAWN = 0.1  # seconds between two states of a line that is rewritten


class Line:
  """The last line of a stream: a terminal shows the next text in its place; elsewhere lines stay.

  Attributes:
    live: whether the stream is a terminal.
  """

  def __init__(self, stream: TextIO):
    """`stream` is stdout or stderr."""
    self._stream = stream
    self.live = stream.isatty()

  def show(self, text: str):
    """Shows a text in place of the one before."""
    text = one_line(text)
    if self.live:
      self._write(f"\r{fitted(text, self._columns())}\x1b[K")
    else:
      self._write(f"{text}\n")

  def say(self, text: str):
    """Prints lines that stay; names in them must be on one line, as by `one_line`."""
    self._write(f"{clearing(self._stream)}{text}\n")

  def clear(self):
    """Removes the text that was shown last, from a terminal."""
    self._write(clearing(self._stream))

  def _write(self, text: str):
    print(text, end="", file=self._stream, flush=True)

  def _columns(self) -> int:
    with contextlib.suppress(OSError, ValueError):
      return os.get_terminal_size(self._stream.fileno()).columns
    return 0


def fitted(text: str, columns: int) -> str:
  """The text for a line of a terminal, which could not replace a text of two lines.

  Args:
    text: fields with two spaces between them, or one if it is too long otherwise.
    columns: of the terminal; 0: not known.
  """
  if not columns or len(text) < columns:
    return text
  return text.replace("  ", " ")[: columns - 1]


class Count:
  """The images that are done, of one part of the work."""

  def __init__(self, what: str, total: int, *, compiles: bool, show: Callable, clock: Callable):
    """Nothing is done yet.

    Args:
      what: what the images are, such as the name of the set.
      total: their number; 0: not known, or `begin` tells it.
      compiles: whether the time before the first ones are done is mostly that of the compiler.
      show: shows a text.
      clock: seconds.
    """
    self._what = what
    self._total = total
    self._compiles = compiles
    self._show = show
    self._clock = clock
    self._done = 0
    self._first = (0, 0.0)  # images that were done at first, and when

  def begin(self, total: int):
    """Tells the number of images, if it was not known at once."""
    self._total = total

  def done(self, images: int = 1):
    """Notes that some more images are done."""
    self._done += images
    if not self._first[0]:
      self._first = (self._done, self._clock())
    self._show(self.in_words())

  def in_words(self) -> str:
    """Such as "test: 1,024 of 10,000 images  512 images/s  ETA 0:00:18".

    The speed is that since the first images were done.
    """
    if not self._done and self._compiles:
      return f"{self._what}: {f'{self._total:,} ' if self._total else ''}images, compiling ..."
    done = self._done
    words = f"{self._what}: {done:,} images"
    if self._total:
      done = min(done, self._total)
      words = f"{self._what}: {done:,} of {self._total:,} images"
    first, since = self._first
    seconds = self._clock() - since
    if self._done == first or not seconds:
      return words
    speed = (self._done - first) / seconds
    words += f"  {speed_in_words(speed)}"
    if self._total:
      words += f"  ETA {h_mm_ss((self._total - done) / speed)}"
    return words


def speed_in_words(speed: float) -> str:
  """Images per second, with two digits if they are few."""
  return f"{rounded(speed)} images/s"


class Progress:
  """Says what is done and how far it is, on a `Line`; a context manager, which clears it.

  Where lines stay, the first one comes after `PERIOD`, so that short work prints none.
  """

  def __init__(self, line: Line, clock: Callable[[], float] = time.monotonic):
    """The work begins now, by `clock`, which counts seconds."""
    self._line = line
    self._clock = clock
    self._told = clock()
    self._shown = False

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.clear()

  def doing(self, what: str):
    """Says what is done now, such as "opening data.train", if there is nothing to count."""
    self._next(f"{what} ...")

  def images(self, what: str, total: int = 0, *, compiles: bool = False) -> Count:
    """Begins a part of the work, on images; arguments as for `Count`."""
    count = Count(what, total, compiles=compiles, show=self._show, clock=self._clock)
    self._next(count.in_words())
    return count

  def clear(self):
    """Removes the line from a terminal."""
    if self._shown and self._line.live:
      self._line.clear()
    self._shown = False

  def _next(self, text: str):
    """Shows the first text of another part, on a terminal at once."""
    if self._line.live:
      self._told = -float("inf")
    self._show(text)

  def _show(self, text: str):
    now = self._clock()
    pause = REDRAWN if self._line.live else PERIOD
    if now - self._told >= pause:
      self._told = now
      self._shown = True
      self._line.show(text)


class NoProgress:
  """The progress of every process but the first, and of work that nobody follows: says nothing."""

  def __enter__(self):
    return self

  def __exit__(self, *_):
    """Has nothing to clear."""

  def doing(self, what: str):
    """Ignores it."""

  def images(self, what: str, total: int = 0, *, compiles: bool = False) -> "NoProgress":
    """Is its own count."""
    del what, total, compiles
    return self

  def begin(self, total: int):
    """Ignores the number."""

  def done(self, images: int = 1):
    """Ignores the images."""

  def clear(self):
    """Has nothing to clear."""


SILENT = NoProgress()


def of_process(first: bool, stream: TextIO | None = None) -> Progress | NoProgress:
  """The progress of work that all processes do together.

  Args:
    first: whether this is the first process, which alone shows it.
    stream: where; None: stdout.
  """
  if not first:
    return SILENT
  return Progress(Line(stream or sys.stdout))


def is_first(process: int) -> bool:
  """Whether this is process 0, as far as that is known before the processes are connected.

  The hosts of a Cloud TPU may learn only then which one they are; for each of them it is False.

  Args:
    process: the number that the command line gives; -1: none.
  """
  if process >= 0:
    return process == 0
  number = os.environ.get("SLURM_PROCID") or os.environ.get("TPU_WORKER_ID")
  if number:
    return number == "0"
  return not machine.on_tpu()
