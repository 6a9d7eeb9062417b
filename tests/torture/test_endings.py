"""Runs that are ended twenty times, at any moment, by kill -9 or a signal: the same bits."""

import random
import signal
import time

from tests import programs
from tests.ends import assert_equal_ends, metric_lines, wait_for
from tests.faults import faulty
from vit_jax.storage import checkpoint

CASES = (0, 20)  # tests/faults do so in every test run
ENDINGS = 20
STUCK = 300  # seconds
STEPS = [
  "--config.duration.steps=500",
  "--config.schedule.warmup.steps=40",
  "--config.log_every.steps=5",
  "--config.evaluate_every.steps=25",
]
# Exit statuses, of which the second means that there was nothing to save.
ENDS = {signal.SIGKILL: (-9,), signal.SIGTERM: (75, -15), signal.SIGINT: (75, 130)}


def cases(count: int):
  """Seeds of the moments."""
  return [(str(seed), seed) for seed in range(count)]


def test_they_leave_no_trace(case, tmp_path):
  alone, ended, rng, reached = tmp_path / "alone", tmp_path / "ended", random.Random(case), []
  assert programs.run(command(alone)).returncode == 0
  for _ in range(ENDINGS):
    number, lines = rng.choice(tuple(ENDS)), rng.choice((0, 1, 3, 5))
    with programs.start(command(ended)) as process:
      if lines:
        wait_for_lines(process, ended, lines)
      if rng.random() < 0.25 and lines:
        wait_for(process, "a save", lambda: any(ended.glob("checkpoints/*tmp*")))
      else:  # while starting, loading or compiling, or in a step or an evaluation
        time.sleep(rng.uniform(0, 0.05 if lines else 1.5))
      process.send_signal(number)
      output = process.finish(STUCK)
    assert process.returncode in ENDS[number], output
    assert "Traceback" not in output, output
    reached.append(max(checkpoint.available(ended), default=0))
  assert reached == sorted(reached)
  assert reached[-1] >= 20  # ended after saves too
  assert programs.run(command(ended)).returncode == 0
  assert_equal_ends(ended, alone, step=500)


def command(workdir):
  return programs.digits(workdir, *faulty.COMMON, *STEPS)


def wait_for_lines(process, workdir, lines):
  """Waits for new lines of metrics, after those of steps that are done again were dropped."""
  events = lambda: sum(path.stat().st_size for path in workdir.glob("events.out.*"))
  before = events()
  wait_for(process, "a start", lambda: events() != before)
  need = len(metric_lines(workdir)) + lines
  wait_for(process, "lines of metrics", lambda: len(metric_lines(workdir)) >= need)
