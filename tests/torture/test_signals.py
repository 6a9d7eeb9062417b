"""Signals at any moment: the process ends soon and says so; the run goes on to the same bits."""

import random
import signal
import time

from tests import programs
from tests.ends import assert_equal_ends, metric_lines, wait_for
from tests.faults import faulty

CASES = (0, 200)  # training/test_resume.py and faults/ signal in every test run
MAX_WAIT = (3.0, 0.5)  # seconds after the start, and after the first line of metrics
SIGNALS = (signal.SIGINT, signal.SIGTERM)
ENDS_IN = 30  # seconds of computing in all; a program may have to be compiled first
STUCK = 300  # seconds
INTERRUPTED = 130


def cases(count: int):
  """(signal, whether the run is to have begun first, seconds to wait then)."""
  found = []
  for number in range(count):
    which, begun = SIGNALS[number % 2], number % 4 > 1
    after = random.Random(number).uniform(0, MAX_WAIT[begun])
    name = f"{number}-{which.name}-{'steps' if begun else 'start'}-{after:.3f}"
    found.append((name, (which, begun, after)))
  return found


def test_ends_and_goes_on(case, uninterrupted, tmp_path):
  which, begun, after = case
  workdir = tmp_path / "run"
  with programs.start(programs.digits(workdir, *faulty.COMMON)) as process:
    if begun:
      wait_for(process, "a step", lambda: metric_lines(workdir))
    time.sleep(after)
    process.send_signal(which)
    output = process.finish(STUCK)
  assert process.cpu_seconds < ENDS_IN
  assert "Traceback" not in output, output
  if process.returncode == 75:
    assert "start the same command again" in output.lower(), output
  else:
    nothing_to_save = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: -signal.SIGTERM}[which]
    assert process.returncode in (0, nothing_to_save), output
  result = programs.run(programs.digits(workdir, *faulty.COMMON))
  assert result.returncode == 0, result.stdout + result.stderr
  assert_equal_ends(workdir, uninterrupted)
