"""A read that fails is not damage: nothing is moved, and nothing is begun anew."""

import contextlib
import errno
import io
import os
import pathlib
import shutil
import tempfile
import threading
import time

import pytest

from tests.storage.states import flip_a_bit, restore, saved
from vit_jax.config import recorded
from vit_jax.process.errors import RunError, StorageError
from vit_jax.storage import checkpoint, files, local, manifest, metrics_log, starts
from vit_jax.storage.base import CannotReadError
from vit_jax.training import start

LINE = b'{"step": 1, "loss": 1.5}\n'
PASSING = [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN]
PLACES = ["manifest.json", "meta/metadata", "state/_METADATA"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  saved(folder, 7, 9)
  (folder / "metrics.jsonl").write_bytes(LINE)
  (folder / "starts.jsonl").write_text('{"a": 1}\n')
  (folder / "config.json").write_text("{}")
  return folder


@pytest.fixture
def workdir(whole):
  """A run that every user may read, in a folder that all may pass."""
  with tempfile.TemporaryDirectory() as scratch:
    os.chmod(scratch, 0o755)
    yield pathlib.Path(shutil.copytree(whole, pathlib.Path(scratch, "run")))


def everything(folder):
  paths = [path for path in folder.rglob("*") if path.is_file()]
  return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class Failing(io.FileIO):
  """A file whose bytes cannot be read."""

  code = errno.EIO

  def readinto(self, buffer):
    raise OSError(self.code, os.strerror(self.code))

  read = readall = lambda self, *_: self.readinto(b"")


@contextlib.contextmanager
def failing(name, code, when):
  """Lets every file whose path ends in `name` fail when it is opened, or when it is read."""
  usual = local._Local.open

  def opening(self, path):
    if not str(path).endswith(name):
      return usual(self, path)
    if when == "opened":
      raise OSError(code, os.strerror(code), str(path))
    file = Failing(path)
    file.code = code
    return file

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(local._Local, "open", opening)
    yield


@contextlib.contextmanager
def another_user():
  """A user to whom the modes of files apply, as they do not to root."""
  before = os.geteuid()
  if before == 0:
    os.seteuid(65534)
  try:
    yield
  finally:
    os.seteuid(before)


@pytest.mark.parametrize("when", ["opened", "read"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("code", PASSING)
def test_a_checkpoint_that_cannot_be_read_now_is_not_damaged(workdir, code, place, when):
  before = everything(workdir)
  with failing(place, code, when):
    with pytest.raises(CannotReadError, match=rf"cannot be read now \({os.strerror(code)}\)"):
      restore(workdir)
    if place != "state/_METADATA":  # which only a restore reads
      with pytest.raises(CannotReadError):
        start.read_recorded(workdir)  # not: there is no checkpoint, so begin
  assert everything(workdir) == before


@pytest.mark.parametrize("call", ["listdir", "stat", "scandir"])
def test_a_folder_that_cannot_be_read_now_is_not_empty(workdir, monkeypatch, call):
  before, usual = everything(workdir), getattr(os, call)

  def failing_call(path, *args, **options):
    if "checkpoints" in str(path):
      raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
    return usual(path, *args, **options)

  with monkeypatch.context() as patch:
    patch.setattr(os, call, failing_call)
    with pytest.raises(OSError, match="Input/output error"):
      restore(workdir)
    if call != "scandir":  # of the sums alone
      with pytest.raises(CannotReadError):
        start.read_recorded(workdir)
  assert everything(workdir) == before


@pytest.mark.parametrize("place", [*PLACES, "", "meta", "state"])
def test_modes_that_forbid_a_user_to_read_are_no_damage(workdir, place):
  before, path = everything(workdir), workdir / "checkpoints" / "9" / place
  mode = path.stat().st_mode
  path.chmod(0)
  with another_user():
    with pytest.raises(CannotReadError, match="Permission denied"):
      checkpoint.damage_of(workdir / "checkpoints" / "9")
    with pytest.raises(CannotReadError, match="Permission denied"):
      checkpoint.find(workdir)
  path.chmod(mode)
  assert everything(workdir) == before


def test_what_tensorstore_cannot_read_now_is_one_sentence(workdir):
  folder = workdir / "checkpoints" / "9"
  error = ValueError("UNKNOWN: error [os_error_code='5'] reading d/1")
  with pytest.raises(CannotReadError, match="Input/output error"), checkpoint._reading(folder):
    raise error
  with pytest.raises(CannotReadError, match="busy"), checkpoint._reading(folder):
    raise ValueError("UNAVAILABLE: busy [tensorstore_spec='{\"a\": [1]}']")
  words = r"arrays cannot be read: NOT_FOUND: a of \[3\]\. Read it"
  with pytest.raises(checkpoint.CheckpointError, match=words), checkpoint._reading(folder):
    raise ValueError("NOT_FOUND: a of [3] [tensorstore_spec='{}']")


@pytest.mark.parametrize("when", ["opened", "read"])
@pytest.mark.parametrize(
  ("name", "reading"),
  [
    ("metrics.jsonl", metrics_log.read_lines),
    ("metrics.jsonl", lambda folder: metrics_log.Writer(folder, start_step=1)),
    ("starts.jsonl", starts.read_starts),
    ("config.json", recorded.read_config),
  ],
)
def test_other_files_of_a_run_are_not_damaged_either(workdir, name, reading, when):
  before = everything(workdir)
  with failing(name, errno.ESTALE, when), pytest.raises(CannotReadError, match="Stale file handle"):
    reading(workdir)
  assert {key: x for key, x in everything(workdir).items() if "tfevents" not in key} == before


def test_it_ends_a_run_with_status_1():
  error = CannotReadError(errno.EIO, "Input/output error", "x")
  assert isinstance(error, RunError | StorageError)
  assert not isinstance(error, ValueError)


@pytest.mark.parametrize("first", ["manifest.json", "state/_METADATA"])
def test_what_another_process_is_removing_is_gone_and_not_damaged(workdir, monkeypatch, first):
  monkeypatch.setattr(manifest, "SETTLED", 0.1)
  folder = workdir / "checkpoints" / "9"

  def remove_slowly():
    for path in sorted(folder.rglob("*"), key=lambda path: path.is_dir()):
      if path.is_file():
        path.unlink()
        time.sleep(0.02)
    shutil.rmtree(folder)

  (folder / first).unlink()
  thread = threading.Thread(target=remove_slowly)
  thread.start()
  with pytest.raises(checkpoint.RemovedError):
    checkpoint.damage_of(folder)
  thread.join()
  assert int(restore(workdir).step) == 7
  assert not files.exists(workdir / "checkpoints-damaged")


def test_a_content_that_does_not_match_is_damage_whatever_else_can_be_read(workdir):
  flip_a_bit(workdir / "checkpoints" / "9")
  assert int(restore(workdir).step) == 7
  assert (workdir / "checkpoints-damaged" / "9").is_dir()
