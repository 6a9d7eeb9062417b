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

from tests.storage.states import restore, saved
from vit_jax import registry
from vit_jax.config import recorded
from vit_jax.process.errors import RunError, StorageError
from vit_jax.storage import checkpoint, files, manifest, metrics_log
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.base import CannotReadError, raised_as
from vit_jax.storage.local import LOCAL
from vit_jax.storage.paths import HERE
from vit_jax.training import start

LINE = b'{"step": 1, "loss": 1.5}\n'
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


class Failing(type(LOCAL)):
  """The storage of this machine, of which files whose path ends in `name` cannot be read."""

  def __init__(self, name, code, when):
    self._name, self._when = name, when
    self._error = OSError(code, os.strerror(code), name)

  def open(self, path):
    if not str(path).endswith(self._name):
      return super().open(path)
    if self._when == "opened":
      raise self._error
    return Unreadable(path, self._error)


class Unreadable(io.FileIO):
  """A file whose bytes cannot be read."""

  def __init__(self, path, error):
    super().__init__(path)
    self._error = error

  def readinto(self, buffer):
    raise self._error

  read = readall = lambda self, *_: self.readinto(b"")


@contextlib.contextmanager
def failing(*fault):
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(registry, "STORAGES", {HERE: Failing(*fault)})
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


PASSING = [errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN]
FAULTS = [(PLACES[0], code, "opened") for code in PASSING]
FAULTS += [(place, errno.EIO, "read") for place in PLACES]
FAULTS += [(place, errno.ESTALE, "opened") for place in PLACES[1:]]


@pytest.mark.parametrize(("place", "code", "when"), FAULTS)
def test_a_checkpoint_that_cannot_be_read_now_is_not_damaged(workdir, place, code, when):
  before = everything(workdir)
  with failing(place, code, when):
    with pytest.raises(CannotReadError, match=rf"cannot be read now \({os.strerror(code)}\)") as it:
      restore(workdir)
    if place != "state/_METADATA":  # which only a restore reads
      with pytest.raises(CannotReadError):
        start.read_recorded(workdir)  # not: there is no checkpoint, so begin
  assert everything(workdir) == before
  assert isinstance(it.value, RunError | StorageError)  # a run ends with status 1
  assert not isinstance(it.value, ValueError)


@pytest.mark.parametrize(
  ("error", "expected", "words"),
  [
    (ValueError("torn"), RunError, "a.json: torn"),
    (FileNotFoundError("none"), RunError, "a.json: none"),
    (CannotReadError(errno.EIO, "busy", "a.json"), CannotReadError, "a.json cannot be read now"),
    (KeyError("b"), KeyError, "'b'"),
  ],
)
def test_an_error_of_a_read_names_what_was_read_unless_it_may_pass(error, expected, words):
  with pytest.raises(expected) as it:  # noqa: SIM117
    with raised_as(RunError, lambda error: f"a.json: {error}", ValueError, OSError):
      raise error
  assert type(it.value) is expected
  assert str(it.value).startswith(words)
  assert it.value is error or it.value.__cause__ is error


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
  before, folder = everything(workdir), workdir / "checkpoints" / "9"
  mode = (folder / place).stat().st_mode
  (folder / place).chmod(0)
  with another_user():
    for look in (lambda: checkpoint.damage_of(folder), lambda: checkpoint.find(workdir)):
      with pytest.raises(CannotReadError, match="Permission denied"):
        look()
  (folder / place).chmod(mode)
  assert everything(workdir) == before


@pytest.mark.parametrize(
  ("said", "kind", "message"),
  [
    ("UNKNOWN: error [os_error_code='5'] reading d/1", CannotReadError, "Input/output error"),
    ("UNAVAILABLE: busy [tensorstore_spec='{\"a\": [1]}']", CannotReadError, "busy"),
    (
      "NOT_FOUND: a of [3] [tensorstore_spec='{}']",
      checkpoint.CheckpointError,
      r"arrays cannot be read: NOT_FOUND: a of \[3\]\. Read it",
    ),
  ],
)
def test_what_tensorstore_cannot_read_now_is_one_sentence(whole, said, kind, message):
  with pytest.raises(kind, match=message), checkpoint._reading(whole / "checkpoints" / "9"):
    raise ValueError(said)


@pytest.mark.parametrize("when", ["opened", "read"])
@pytest.mark.parametrize(
  ("name", "reading"),
  [
    ("metrics.jsonl", metrics_log.read_lines),
    ("metrics.jsonl", lambda folder: metrics_log.Writer(folder, start_step=1)),
    ("starts.jsonl", workdirs.read_starts),
    ("config.json", recorded.read_config),
  ],
)
def test_other_files_of_a_run_are_not_damaged_either(workdir, name, reading, when):
  before = everything(workdir)
  with failing(name, errno.ESTALE, when), pytest.raises(CannotReadError, match="Stale file handle"):
    reading(workdir)
  assert {key: x for key, x in everything(workdir).items() if "tfevents" not in key} == before


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
  assert not files.matching(workdir / "checkpoints", "*.damaged*")
