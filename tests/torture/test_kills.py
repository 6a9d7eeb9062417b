"""kill -9 twenty times in the course of one run: it ends with the bits of a run left alone."""

import os
import random
import signal
import time

from tests import programs
from tests.ends import assert_equal_ends, metric_lines
from tests.faults import faulty
from vit_jax.storage import checkpoint

CASES = (0, 8)  # training/test_resume.py kills in every test run
KILLS = 20
STEPS = [
  "--config.duration.steps=400",
  "--config.schedule.warmup.steps=40",
  "--config.log_every.steps=5",
  "--config.evaluate_every.steps=25",
]


def cases(count):
  """Seeds of the moments."""
  return [(str(seed), seed) for seed in range(count)]


def start(workdir):
  """Starts, or goes on with, the run."""
  _, _, module, *flags = programs.digits(workdir, *faulty.COMMON, *STEPS)
  with open(os.devnull, "w") as nowhere:
    outputs = [nowhere.fileno()] * 2
    return programs.fork_server().start(module, flags, programs.environment(), outputs)


def moments(seed):
  """For each kill: new lines of metrics to wait for, and a time to wait then, in seconds.

  A line is written each 5 steps, a checkpoint each 10; the time is that of some steps, so that
  steps and evaluations are hit. No line at all: while starting, loading or compiling. No time:
  as soon as a save is under way.
  """
  rng = random.Random(seed)
  for i in range(KILLS):
    lines = rng.choice((0, 1, 3, 4, 5, 6))
    yield (1, None) if i % 4 == 3 else (lines, rng.uniform(0, 0.05 if lines else 1.5))


def test_twenty_kills_leave_no_trace(case, tmp_path):
  alone, killed = tmp_path / "alone", tmp_path / "killed"
  assert start(alone).wait() == 0
  reached, cut_short = [], 0
  for lines, seconds in moments(case):
    before = written(killed)
    run = start(killed)
    if lines:
      wait_for(lambda before=before: written(killed) != before)
      need = len(metric_lines(killed)) + lines
      wait_for(lambda need=need: len(metric_lines(killed)) >= need)
    if seconds is None:
      wait_for(lambda: unfinished(killed))
    else:
      time.sleep(seconds)
    run.kill()
    assert run.wait() == -signal.SIGKILL  # it had not ended by itself
    reached.append(max(checkpoint.available(killed), default=0))
    cut_short += seconds is None and bool(unfinished(killed))
  assert reached == sorted(reached)
  assert reached[-1] >= 20  # killed after saves too
  assert cut_short >= 1  # and in the middle of one, of five that were aimed at
  assert start(killed).wait() == 0
  assert_equal_ends(killed, alone, step=400)


def unfinished(workdir):
  """Folders of saves that have not come to their end."""
  return [path.name for path in workdir.glob("checkpoints/*") if not path.name.isdigit()]


def written(workdir):
  """Size of TensorBoard's files: it grows when a run begins, old lines of metrics then dropped."""
  return sum(path.stat().st_size for path in workdir.glob("events.out.*"))


def wait_for(condition):
  deadline = time.monotonic() + 300
  while not condition():
    assert time.monotonic() < deadline
    time.sleep(0.001)
