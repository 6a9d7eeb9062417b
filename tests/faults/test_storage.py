"""Disks that are full, folders that are gone or may not be written to. Real processes."""

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


def test_a_workdir_lost_on_the_way(uninterrupted, tmp_path):
  workdir, away = tmp_path / "run", tmp_path / "run-away"
  result = faulty.run("gone:20", workdir, AT_ONCE)
  assert result.returncode == 1
  said = programs.message(result)
  assert "is gone" in said
  assert str(workdir) in said
  assert "Traceback" not in result.stderr
  assert not workdir.exists()  # nothing is made anew in its place
  away.rename(workdir)
  assert checkpoint.available(workdir) == [10]
  assert "resuming after step 10" in faulty.resume(workdir)
  assert_equal_ends(workdir, uninterrupted)


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
