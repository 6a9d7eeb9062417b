"""Disks that are full, folders that are gone or may not be written to. Real processes."""

import re
import sys

import pytest

from tests import programs
from tests.ends import assert_equal_ends
from tests.faults import faulty
from vit_jax.storage import checkpoint

AT_ONCE = "--config.checkpoint.retry_seconds=0"


def test_a_full_disk_stops_the_run_and_the_last_good_checkpoint_stays(uninterrupted, tmp_path):
  result = faulty.run("full:20-99", tmp_path, AT_ONCE)
  assert result.returncode == 1
  said = programs.message(result)
  assert "File too large" in said
  assert f"{tmp_path}" in said
  assert "start the same command again" in said
  assert checkpoint.available(tmp_path) == [10]
  assert "resuming after step 10" in faulty.resume(tmp_path)
  assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"30", "40"}
  assert_equal_ends(tmp_path, uninterrupted)


def test_a_full_disk_is_outlived(uninterrupted, tmp_path):
  result = faulty.run("full:20-40", tmp_path)
  assert result.returncode == 0, result.stderr
  assert result.stdout.count("could not be saved") == 1
  assert "checkpoints/20 could not be saved (File too large)" in result.stdout
  assert "The run goes on, and tries again for 600 s" in result.stdout
  assert "A checkpoint is saved again" in result.stdout
  assert "They wait in memory" in result.stdout
  assert not result.stderr
  assert checkpoint.available(tmp_path) == [10, 40]
  assert_equal_ends(tmp_path, uninterrupted)


def test_the_last_save_is_tried_again_too(uninterrupted, tmp_path):
  result = faulty.run("full:40-99-0-1", tmp_path)
  assert result.returncode == 0, result.stderr
  assert "checkpoints/40 could not be saved (File too large)" in result.stdout
  assert checkpoint.available(tmp_path) == [30, 40]
  assert_equal_ends(tmp_path, uninterrupted)


def test_a_last_save_that_fails_for_the_time_that_is_set_is_an_error(tmp_path):
  result = faulty.run("full:40-99", tmp_path, "--config.checkpoint.retry_seconds=1.5")
  assert result.returncode == 1
  said = programs.message(result)
  assert "checkpoints/40 could not be saved (File too large)" in said
  assert f"the last good one is {tmp_path}/checkpoints/30. It was tried again for 1.5 s." in said
  assert "Done" not in result.stdout
  assert len(result.stderr.splitlines()) == 1  # and not what threads of the save say later
  assert checkpoint.available(tmp_path) == [20, 30]


def test_a_signal_on_a_full_disk_does_not_pretend_that_the_state_is_saved(tmp_path):
  result = faulty.run("full_and_signalled:10", tmp_path, "--config.checkpoint.retry_seconds=1")
  assert result.returncode == 1
  said = programs.message(result)  # of the save that the signal asked for
  assert re.search(r"checkpoints/1[0-9] could not be saved \(File too large\); there is none", said)
  assert "Stopped by a signal" not in result.stdout


@pytest.mark.parametrize("fault", ["gone", "read_only"])
def test_a_workdir_lost_on_the_way(uninterrupted, tmp_path, fault):
  workdir, away = tmp_path / "run", tmp_path / "run-away"
  command = [sys.executable, "-m", "tests.faults.unprivileged"]
  result = programs.run([*command, *faulty.command(f"{fault}:20", workdir, AT_ONCE)], timeout=100)
  assert result.returncode == 1
  said = programs.message(result)
  assert {"gone": "is gone", "read_only": "Permission denied"}[fault] in said
  assert str(workdir) in said
  assert "Traceback" not in result.stderr
  if fault == "gone":
    assert not workdir.exists()  # nothing is made anew in its place
    away.rename(workdir)
  else:
    for place in (workdir, workdir / "checkpoints"):
      place.chmod(0o755)
  assert checkpoint.available(workdir) == [10]
  assert "resuming after step 10" in faulty.resume(workdir)
  assert_equal_ends(workdir, uninterrupted)


def test_a_run_whose_lock_was_taken_writes_nothing_more(tmp_path):
  result = faulty.run("gone_lock:20", tmp_path)
  assert result.returncode == 1
  assert programs.message(result).startswith(f"vit_jax: {tmp_path}/lock was removed or replaced")
  assert checkpoint.available(tmp_path) == [10]
  assert "Traceback" not in result.stderr


def test_checkpoints_that_are_removed_cost_only_themselves(uninterrupted, tmp_path):
  result = faulty.run("gone_checkpoints:20", tmp_path)
  assert result.returncode == 0, result.stderr
  assert f"{tmp_path}/checkpoints was removed; it is made anew." in result.stderr
  assert_equal_ends(tmp_path, uninterrupted)


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_a_workdir_that_may_not_be_written_to_is_refused_at_once(tmp_path, place):
  closed = tmp_path / place
  closed.mkdir(exist_ok=True)
  tmp_path.chmod(0o777)
  closed.chmod(0o555)
  command = [sys.executable, "-m", "tests.faults.unprivileged", *programs.digits(tmp_path)]
  result = programs.run(command)
  closed.chmod(0o755)
  assert result.returncode == 2
  assert f"--workdir={tmp_path} cannot be written to: Permission denied" in programs.message(result)
  assert "Traceback" not in result.stderr
  assert not list(closed.iterdir())
