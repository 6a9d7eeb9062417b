"""The run's folder: lock and config."""

import errno
import fcntl
import os
import subprocess
import sys

import pytest

from vit_jax import config as c
from vit_jax.storage import files, metrics_log, workdir

HOLDS = """
import pathlib, sys
from vit_jax.storage import workdir
with workdir.locked(pathlib.Path(sys.argv[1]), first=True):
  print("locked", flush=True)
  sys.stdin.read()
"""
# Root may write anywhere; this takes that right from the program that follows.
UNPRIVILEGED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.executable, [sys.executable, *sys.argv])
"""


def refused(folder, message):
  """A run cannot have this folder."""
  with pytest.raises(c.ConfigError, match=message), workdir.locked(folder, first=True):
    pass


def test_a_second_run_is_refused_while_the_first_lives(tmp_path):
  words, pipe = [sys.executable, "-c", HOLDS, tmp_path], subprocess.PIPE
  with subprocess.Popen(words, stdin=pipe, stdout=pipe) as first:
    assert first.stdout.readline() == b"locked\n"
    refused(tmp_path, "in use by another run")
    first.kill()
    first.wait()
    with workdir.locked(tmp_path, first=True):  # the lock of a killed run is free
      assert (tmp_path / "lock").exists()


def test_a_lock_is_seen_without_taking_it(tmp_path):
  lock = tmp_path / "lock"
  assert not files.is_locked(lock)
  with files.locked(lock):
    assert files.is_locked(lock)
  with lock.open() as other:
    fcntl.flock(other, fcntl.LOCK_SH)  # as another process that looks at the same time
    assert not files.is_locked(lock)


@pytest.mark.parametrize("place", ["", "checkpoints"])
def test_a_workdir_that_may_not_be_written_to_is_refused_at_once(tmp_path, place):
  closed = tmp_path / place
  closed.mkdir(exist_ok=True)
  closed.chmod(0o555)
  command = [sys.executable, "-c", UNPRIVILEGED, HOLDS, tmp_path]
  result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
  closed.chmod(0o755)
  refusal = f"--workdir={tmp_path} cannot be written to: Permission denied"
  assert f"ConfigError: {refusal}" in result.stderr
  assert not list(closed.iterdir())


def test_a_new_folder_is_written_to_where_folders_are_only_made_by_their_files(
  tmp_path, monkeypatch
):
  """As in a bucket."""
  written = []
  monkeypatch.setattr(files, "is_folder", lambda path: False)
  monkeypatch.setattr(files, "check_writable", written.append)
  workdir.check_writable(tmp_path, workdir.DETAILS)
  assert written == [tmp_path]


def test_processes_that_check_a_folder_at_once_write_no_common_file(tmp_path, monkeypatch):
  """A bucket allows one write a second to one object."""
  written, write = [], files.write_bytes
  monkeypatch.setattr(files, "write_bytes", lambda *file: written.append(file[0]) or write(*file))
  for _ in range(3):
    with workdir.locked(tmp_path, first=False):
      assert not list(tmp_path.iterdir())
  assert len(set(written)) == 3


def test_what_is_no_workdir_is_refused_and_not_waited_for(tmp_path):
  (tmp_path / "file").write_text("")
  refused(tmp_path / "file" / "run", "cannot be written to")
  os.mkfifo(tmp_path / "lock")
  refused(tmp_path, r"cannot be written to: .* \(.*/lock\)")


@pytest.mark.parametrize("replace", [False, True])
def test_a_lock_that_was_removed_is_noticed_before_anything_is_written(tmp_path, replace):
  folder = tmp_path / "run"
  with workdir.locked(folder, first=True):
    writer = metrics_log.Writer(folder, start_step=0)
    writer.write(1, {"loss": 1.0})
    folder.rename(tmp_path / "away")
    workdir.check_held(folder)  # the folder itself is gone: what cannot be written will say so
    (tmp_path / "away").rename(folder)
    writer.write(2, {"loss": 1.0})
    (folder / "lock").unlink()
    if replace:
      (folder / "lock").touch()
    with pytest.raises(workdir.LostError, match="another run may be writing"):
      writer.write(3, {"loss": 1.0})
    writer.close()
  assert [line["step"] for line in metrics_log.read_lines(folder)] == [1, 2]
  workdir.check_held(folder)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch, code):
  def flock(*_):
    raise OSError(code, os.strerror(code))

  monkeypatch.setattr("fcntl.flock", flock)
  refused(tmp_path / "run", r"gives no locks: mount it with locks.*run/lock")
  with pytest.raises(OSError, match="gives no locks"), files.one_writer(tmp_path / "weights"):
    pass
