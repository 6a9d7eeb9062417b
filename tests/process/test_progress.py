"""How far work is: on a terminal, one line that is rewritten; elsewhere, few lines or none."""

import io
import types

import pytest

from vit_jax.process import machine, progress
from vit_jax.process.progress import Line, Progress

CLEAR = "\r\x1b[K"


class Console(io.StringIO):
  """A stream that is a terminal or not."""

  def __init__(self, live):
    super().__init__()
    self.isatty = lambda: live
    self.fileno = lambda: -1


class Clock:
  """Seconds that the test sets."""

  now = 100.0

  def __call__(self):
    return self.now


def following(live):
  """The progress, its clock, and what it prints."""
  stream, clock = Console(live), Clock()
  return Progress(Line(stream), clock), clock, stream


def test_a_terminal_shows_one_line_that_is_cleared():
  work, clock, stream = following(live=True)
  with work:
    work.doing("opening it")
    images = work.images("test", 10_000, compiles=True)
    for seconds, done in ((50.0, 1024), (2.0, 1024), (0.01, 1024), (2.0, 1024), (9.0, 5904)):
      clock.now += seconds
      images.done(done)
  texts = stream.getvalue().split("\r")[1:]
  assert texts == [
    "opening it ...\x1b[K",
    "test: 10,000 images, compiling ...\x1b[K",
    "test: 1,024 of 10,000 images\x1b[K",
    "test: 2,048 of 10,000 images  512 images/s  ETA 0:00:16\x1b[K",
    "test: 4,096 of 10,000 images  766 images/s  ETA 0:00:08\x1b[K",  # not the one 0.01 s later
    "test: 10,000 of 10,000 images  690 images/s  ETA 0:00:00\x1b[K",
    "\x1b[K",
  ]


@pytest.mark.parametrize(
  ("speed", "words"),
  [(0.1678, "0.17"), (0.5, "0.5"), (1.04, "1.0"), (9.51, "9.5"), (10.4, "10"), (1234.5, "1,234")],
)
def test_a_slow_speed_has_two_digits(speed, words):
  assert progress.speed_in_words(speed) == f"{words} images/s"


def test_images_of_an_unknown_number():
  work, clock, stream = following(live=True)
  images = work.images("test", compiles=True)
  for seconds in (50.0, 2.0):
    clock.now += seconds
    images.done(1024)
  assert stream.getvalue().split("\r")[1:] == [
    "test: images, compiling ...\x1b[K",
    "test: 1,024 images\x1b[K",
    "test: 2,048 images  512 images/s\x1b[K",
  ]


def test_elsewhere_short_work_prints_nothing():
  work, clock, stream = following(live=False)
  with work:
    for name in ("train", "test"):
      work.doing(f"opening {name}")
      images = work.images(name, 3)
      for _ in range(3):
        clock.now += 4.9
        images.done()
  assert stream.getvalue() == ""


def test_elsewhere_a_line_comes_every_half_minute():
  work, clock, stream = following(live=False)
  images = work.images("test", 50)
  for _ in range(50):
    clock.now += 2.0
    images.done()
  work.clear()
  assert stream.getvalue() == (
    "test: 15 of 50 images  0.5 images/s  ETA 0:01:10\n"
    "test: 30 of 50 images  0.5 images/s  ETA 0:00:40\n"
    "test: 45 of 50 images  0.5 images/s  ETA 0:00:10\n"
  )


def test_a_line_of_a_terminal_is_never_two(monkeypatch):
  stream = Console(True)
  monkeypatch.setattr(progress.os, "get_terminal_size", lambda _: types.SimpleNamespace(columns=12))
  for text in ("step 1  ETA", "step 10  ETA 1", "step 1000  ETA 1"):
    Line(stream).show(text)
  assert stream.getvalue() == (
    "\rstep 1  ETA\x1b[K" + "\rstep 10 ETA\x1b[K" + "\rstep 1000 E\x1b[K"
  )


def test_lines_that_stay_replace_the_one_that_is_rewritten():
  for live, shown in (
    (True, f"\rone\x1b[K{CLEAR}two\nthree\n{CLEAR}"),
    (False, "one\ntwo\nthree\n"),
  ):
    line = Line(stream := Console(live))
    line.show("one")
    line.say("two\nthree")
    line.clear()
    assert stream.getvalue() == shown


def test_other_processes_say_nothing(capsys):
  with progress.of_process(False) as work:
    work.doing("opening it")
    images = work.images("test", 10)
    images.done(10)
  assert capsys.readouterr() == ("", "")
  assert isinstance(progress.of_process(True), Progress)


@pytest.mark.parametrize(
  ("process", "variables", "on_tpu", "first"),
  [
    (-1, {}, False, True),
    (0, {}, True, True),
    (1, {}, False, False),
    (-1, {"SLURM_PROCID": "0"}, False, True),
    (-1, {"SLURM_PROCID": "3"}, False, False),
    (-1, {"TPU_WORKER_ID": "0"}, True, True),
    (-1, {"TPU_WORKER_ID": "2"}, True, False),
    (-1, {}, True, False),
  ],
)
def test_the_first_process_is_known_or_not(monkeypatch, process, variables, on_tpu, first):
  for name in ("SLURM_PROCID", "TPU_WORKER_ID"):
    monkeypatch.setenv(name, variables.get(name, ""))
  monkeypatch.setattr(machine, "on_tpu", lambda: on_tpu)
  assert progress.is_first(process) == first
