"""kill -9 twenty times in the course of one run: it ends with the bits of a run left alone."""

import os
import random
import signal
import time

from tests import programs
from tests.ends import assert_equal_ends, metric_lines
from tests.faults import faulty
from vit_jax import checkpoint

KILLS = 20
STEPS = [
  "--config.duration.steps=400",
  "--config.schedule.warmup.steps=40",
  "--config.log_every.steps=5",
  "--config.evaluate_every.steps=25",
]


def start(workdir):
  """Starts, or goes on with, the run."""
  _, _, module, *flags = programs.digits(workdir, *faulty.COMMON, *STEPS)
  with open(os.devnull, "w") as nowhere:
    outputs = [nowhere.fileno()] * 2
    return programs.nursery().start(module, flags, programs.environment(), outputs)


def moments():
  """For each kill: new lines of metrics to wait for, and a time to wait then, in seconds.

  A line is written each 5 steps, a checkpoint each 10; the time is that of some steps, so that
  steps, evaluations and saves are all hit. No line at all: while starting, loading or compiling.
  """
  rng = random.Random(0)
  for _ in range(KILLS):
    lines = rng.choice((0, 1, 3, 4, 5, 6))
    yield lines, rng.uniform(0, 0.05 if lines else 1.5)


def test_twenty_kills_leave_no_trace(tmp_path):
  alone, killed = tmp_path / "alone", tmp_path / "killed"
  assert start(alone).wait() == 0
  reached = []
  for lines, seconds in moments():
    before = written(killed)
    run = start(killed)
    if lines:
      wait_for(lambda before=before: written(killed) != before)
      need = len(metric_lines(killed)) + lines
      wait_for(lambda need=need: len(metric_lines(killed)) >= need)
    time.sleep(seconds)
    run.kill()
    assert run.wait() == -signal.SIGKILL  # it had not ended by itself
    reached.append(max(checkpoint.available(killed), default=0))
  assert reached == sorted(reached)
  assert reached[-1] >= 20  # killed after saves too
  assert start(killed).wait() == 0
  assert_equal_ends(killed, alone, step=400)


def written(workdir):
  """Size of TensorBoard's files: it grows when a run begins, old lines of metrics then dropped."""
  return sum(path.stat().st_size for path in workdir.glob("events.out.*"))


def wait_for(condition):
  deadline = time.monotonic() + 60
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.001)
