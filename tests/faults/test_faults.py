"""One fault in a run: its end, what is left, and the same bits when it goes on. Real processes.

Kills, and signals while compiling and while training: tests/training/test_resume.py.
"""

import random
import time

import pytest

from tests import programs
from tests import tiny_run as tiny_runs
from tests.ends import assert_equal_ends
from tests.faults import faulty
from vit_jax.storage import checkpoint, metrics_log

AT_ONCE = "--config.checkpoint.retry_seconds=0"
# The fault and settings; the exit status; what is said; the checkpoints that are left, if known.
OUTLIVED = (
  "checkpoints/20 could not be saved (File too large)",
  "The run goes on, and tries again for 600 s",
  "They wait in memory",
  "A checkpoint is saved again",
)
FULL = ("(File too large); the last good one is", "start the same command again")
STOPPED = "Stopped by a signal after step"
CASES = {
  "a full disk is outlived": (("full:20-40",), 0, OUTLIVED, [10, 40]),
  "a signal while the disk is full": (("full:20-99+signal_in:evaluation", AT_ONCE), 1, FULL, [10]),
  "the workdir is moved away": (("gone:20", AT_ONCE), 1, ("/run", "is gone"), [10]),
  "a signal in a save": (("signal_in:save",), 75, (STOPPED,), None),
  "a signal in an evaluation": (("signal_in:evaluation-SIGHUP",), 75, (f"{STOPPED} 20",), [10, 20]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_command_goes_on_to_the_same_bits(uninterrupted, tmp_path, case):
  (fault, *settings), status, words, left = CASES[case]
  workdir, away = tmp_path / "run", tmp_path / "run-away"
  result = faulty.run(fault, workdir, *settings)
  assert result.returncode == status, result.stderr
  assert "Traceback" not in result.stderr
  said = programs.message(result) if status == 1 else result.stdout
  assert [sentence for sentence in words if sentence not in said] == []
  if away.exists():
    assert not workdir.exists()  # nothing is made anew in its place
    away.rename(workdir)
  steps = checkpoint.available(workdir)
  assert left in (steps, None)
  if status:
    assert f"resuming after step {steps[-1]}" in faulty.resume(workdir)
  assert_equal_ends(workdir, uninterrupted)


def test_a_run_without_a_console_has_written_everything(uninterrupted):
  assert checkpoint.available(uninterrupted) == [30, 40]
  steps = [line["step"] for line in metrics_log.read_lines(uninterrupted) if "loss" in line]
  assert steps == [*range(4, 41, 4)]


def test_a_clock_that_jumps_changes_nothing(tiny_run, tmp_path, monkeypatch):
  """Neither the result nor the measured speed; in this process."""
  real, rng = time.time, random.Random(0)
  with monkeypatch.context() as jumping:
    jumping.setattr(time, "time", lambda: real() + rng.uniform(-86400, 86400))
    jumping.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
    tiny_runs.train(tmp_path)
  assert_equal_ends(tmp_path, tiny_run, step=5)
  lines = [line for line in metrics_log.read_lines(tmp_path) if "loss" in line]
  assert len(lines) == 5
  for line in lines:
    assert 0 < line["step_seconds"] < 60
    assert line["images_per_second"] == 32 / line["step_seconds"]
    assert 0 <= line["eta_seconds"] < 60 * 5
    assert 0 <= line["data/input_wait"] <= 1
