"""Decoding processes (config.data.workers) when they, or the run, are ended. Real processes.

What needs no whole run: tests/data/test_workers.py.
"""

import contextlib
import os
import pathlib
import re
import signal
import time

from tests import programs
from tests.ends import assert_equal_ends, metric_lines, wait_for
from tests.faults import faulty

WORKERS = "--config.data.workers=2"
NOISE = re.compile("Traceback|leaked|Warning")


def start(workdir, *overrides):
  return programs.start(programs.digits(workdir, *faulty.COMMON, WORKERS, *overrides))


def running(process, workdir):
  """The numbers of the processes that a run has started, once it trains."""
  wait_for(process, "a step", lambda: len(metric_lines(workdir)) >= 2)
  lists = pathlib.Path(f"/proc/{process.pid}/task").glob("*/children")
  started = [int(number) for found in lists for number in found.read_text().split()]
  assert len(started) >= 2
  return started


def ended(numbers, seconds=10):
  """Whether all of the processes are gone before the time is over."""
  deadline = time.monotonic() + seconds
  while any(pathlib.Path(f"/proc/{number}").exists() for number in numbers):
    if time.monotonic() > deadline:
      return False
    time.sleep(0.01)
  return True


def interrupt(process, workers):
  """What Ctrl-C does: SIGINT to every process of the terminal's."""
  for number in workers:
    with contextlib.suppress(ProcessLookupError):
      os.kill(number, signal.SIGINT)
  process.send_signal(signal.SIGINT)


def test_no_worker_outlives_an_evaluation_or_a_run_that_was_killed(tmp_path):
  with start(tmp_path, "--config.duration.steps=100000") as process:
    wait_for(process, "an evaluation", lambda: any(map(has_top1, metric_lines(tmp_path))))
    workers = running(process, tmp_path)
    assert len(workers) == 2  # those of the training alone
    process.kill()
    assert ended(workers)
    output = process.stdout.read()
  assert not NOISE.search(output), output


def has_top1(line):
  return "test/top1" in line


def test_a_worker_that_was_killed_ends_the_run_with_a_sentence(tmp_path):
  with start(tmp_path, "--config.duration.steps=100000") as process:
    workers = running(process, tmp_path)
    os.kill(workers[-1], signal.SIGKILL)
    output = process.finish(20)
  assert process.returncode == 1
  (said,) = [line for line in output.splitlines() if line.startswith("vit_jax: ")]
  assert f"(process {workers[-1]}) was killed (SIGKILL)" in said
  assert not NOISE.search(output), output
  assert ended(workers)


def test_a_signal_to_all_processes_saves_and_the_run_goes_on(uninterrupted, tmp_path):
  """As schedulers send it. It may go on with other numbers of workers, and be evaluated so."""
  with start(tmp_path) as process:
    workers = running(process, tmp_path)
    for worker in workers:
      os.kill(worker, signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    output = process.finish(60)
  assert process.returncode == 75, output
  assert not NOISE.search(output), output
  assert ended(workers)
  faulty.resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)
  evaluation = ["--mode=evaluate", "--config.data.workers=1"]
  result = programs.run(programs.digits(tmp_path, *faulty.COMMON, *evaluation))
  assert (result.returncode, result.stderr) == (0, "")


def test_a_second_ctrl_c_leaves_nothing_behind(tmp_path):
  long = ["--config.duration.steps=100000", "--config.evaluate_every.steps=0"]
  with start(tmp_path, *long) as process:
    workers = running(process, tmp_path)
    interrupt(process, workers)
    interrupt(process, workers)
    output = process.finish(60)
  assert process.returncode in (130, 75)  # 75: saved before the second came
  assert not NOISE.search(output), output
  assert ended(workers)
