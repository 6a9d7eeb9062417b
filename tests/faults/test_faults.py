"""One fault in a run: its end, what is left, and the same bits when it goes on. Real processes."""

import random
import shutil
import signal
import time

import pytest

from tests import programs
from tests import tiny_run as tiny_runs
from tests.ends import assert_equal_ends, metric_lines, wait_for
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
SAVED = (
  "Stopping after step",
  "; saving",
  "Start the same command again",
  "\nTime:       0:",
  "% idle",
)
CASES = {
  "a full disk is outlived": (("full:20-40",), 0, OUTLIVED, [10, 40]),
  "a signal while the disk is full": (("full:20-99+signal_in:evaluation", AT_ONCE), 1, FULL, [10]),
  "the workdir is moved away": (("gone:20", AT_ONCE), 1, ("/run", "is gone"), [10]),
  "a signal in a line": (("signal_in:line",), 75, (STOPPED, *SAVED), None),
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
  if status == 75:
    assert f"{STOPPED} {steps[-1]}" in said
  if status:
    again = faulty.resume(workdir)
    assert f"resuming after step {steps[-1]}" in again
    assert ("Other settings" in again) == bool(settings)
  assert_equal_ends(workdir, uninterrupted)


MOMENTS = {
  "before the first step": lambda folder: (folder / "config.json").exists(),
  "inside a save": lambda folder: any(folder.glob("checkpoints/*tmp*")),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment(uninterrupted, tmp_path, moment):
  with programs.start(programs.digits(tmp_path, *faulty.COMMON)) as process:
    wait_for(process, moment, lambda: MOMENTS[moment](tmp_path))
    process.send_signal(signal.SIGKILL)
    process.wait()
  assert 40 not in checkpoint.available(tmp_path)
  faulty.resume(tmp_path)
  assert_equal_ends(tmp_path, uninterrupted)


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(uninterrupted, tmp_path):
  workdir = tmp_path / "run"
  shutil.copytree(uninterrupted, workdir)
  before, last = checkpoint.available(workdir)
  path = next((workdir / "checkpoints" / str(last) / "state" / "d").iterdir())
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 4
  path.write_bytes(data)
  assert f"resuming after step {before}" in faulty.resume(workdir)
  assert_equal_ends(workdir, uninterrupted)


def test_a_run_whose_checkpoints_were_removed_is_refused_and_keeps_its_records(
  uninterrupted, tmp_path
):
  workdir = tmp_path / "run"
  shutil.copytree(uninterrupted, workdir, ignore=shutil.ignore_patterns("checkpoints", "lock"))
  before = metric_lines(workdir)
  result = programs.run(programs.digits(workdir, *faulty.COMMON))
  assert result.returncode == 2, result.stdout
  assert f"{workdir} has metrics of 40 steps" in programs.message(result)
  assert metric_lines(workdir) == before


@pytest.mark.parametrize(
  ("number", "status", "words"),
  [
    (signal.SIGTERM, 75, "before there was anything to save; start the same command again"),
    (signal.SIGINT, 130, "vit_jax: Interrupted."),
  ],
)
def test_a_signal_before_there_is_anything_to_save_ends_the_run_at_once(
  tmp_path, number, status, words
):
  with programs.start(faulty.command("endless_compilation:", tmp_path)) as process:
    for line in process.stdout:
      if "compiling now" in line:
        break
    process.send_signal(number)
    assert process.wait(timeout=60) == status
    assert words in process.stdout.read()


def test_a_second_run_on_the_same_workdir_is_refused(tmp_path):
  command = programs.digits(tmp_path, "--config.duration.steps=100000")
  with programs.start(command) as process:
    wait_for(process, "start", (tmp_path / "config.json").exists)  # after the lock
    result = programs.run(command)
    process.kill()
  assert result.returncode == 2
  assert "in use by another run" in result.stderr


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
