"""A kind of storage is one file and one line: a whole run is kept on a disk with other names."""

import contextlib
import errno
import io
import json
import os
import pathlib

import pytest
from absl.testing import flagsaver
from safetensors.numpy import load_file, save_file

from tests.data import digit_files
from tests.ends import assert_equal_ends
from tests.seams.program import SMALL
from tests.weights import families
from vit_jax import main, registry, weights
from vit_jax.config import command_line
from vit_jax.data import sources
from vit_jax.extras.buckets.entry import Entry
from vit_jax.extras.commands import convert_pickle, export, report, visualize
from vit_jax.extras.formats import timm
from vit_jax.storage import checkpoint, files, metrics_log
from vit_jax.storage.base import FILE, ChangedError, Storage
from vit_jax.storage.local import LOCAL
from vit_jax.storage.paths import UrlPath, path_of

pytestmark = pytest.mark.usefixtures("one_device")


class Killed(BaseException):
  """What nothing in the program catches."""


class Toy(Storage):
  """Files by their URL, which lie in a folder of this machine that only this class knows."""

  direct = False

  def __init__(self, root=None):
    self.root, self.locks, self.appends_left = root, set(), 10**9

  def here(self, path):
    return self.root.joinpath(*path.parts[1:])

  def open(self, path):
    return LOCAL.open(self.here(path))

  def kind(self, path):
    return LOCAL.kind(self.here(path))

  def stamp(self, path):
    return LOCAL.stamp(self.here(path))

  def part(self, path, stamp, start, stop):
    return LOCAL.part(self.here(path), stamp, start, stop)

  def scan(self, folder):
    paths = [folder / name for name in self.names(folder)]
    return (Entry(p.name, self.stamp(p) if self.kind(p) == FILE else None) for p in paths)

  def at_once(self, ask, items):
    return list(map(ask, items))

  def names(self, folder):
    return LOCAL.names(self.here(folder))

  def sizes_below(self, folder):
    return LOCAL.sizes_below(self.here(folder))

  def kvstore(self, folder):
    return LOCAL.kvstore(self.here(folder))

  def make_folder(self, path):
    LOCAL.make_folder(self.here(path))

  def partial(self, path):
    return LOCAL.partial(self.root / path.name)

  def put(self, partial, path, *, new):
    self.make_folder(path.parent)
    LOCAL.put(partial, self.here(path), new=new)

  def sync(self, path):
    pass

  def append(self, path):
    self.make_folder(path.parent)
    return AppendFile(self, LOCAL.append(self.here(path)))

  def rename(self, path, target):
    self.make_folder(target.parent)
    LOCAL.rename(self.here(path), self.here(target))

  def remove(self, path):
    LOCAL.remove(self.here(path))

  @contextlib.contextmanager
  def lock(self, path):
    if path in self.locks:
      raise BlockingIOError(errno.EAGAIN, "It is locked", str(path))
    self.locks.add(path)
    try:
      yield self
    finally:
      self.locks.remove(path)

  def held(self):
    return True


class AppendFile:
  """A file in the toy; after a number of pieces the process dies."""

  def __init__(self, toy, appender):
    self._toy, self._appender = toy, appender

  def add(self, piece):
    self._toy.appends_left -= 1
    if self._toy.appends_left < 0:
      raise Killed
    self._appender.add(piece)

  def flush(self):
    pass

  def close(self):
    self._appender.close()


TOY = Toy()


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path_factory):
  monkeypatch.setitem(registry.STORAGES, "toy", "tests.seams.test_storage:TOY")
  monkeypatch.setattr(f"{__name__}.TOY", Toy(tmp_path_factory.mktemp("toy")))


WORDS = (
  "--config=configs/vit_digits.py",
  *SMALL,
  "--config.duration.steps=10",
  "--config.evaluate_every.steps=4",
  "--config.checkpoint.every.steps=4",
  "--config.report=True",
  "--config.schedule.decay=constant",  # so that runs of any length are one program
)


def run(folder, *words):
  """The main program in this process; its exit status."""
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as end:
    main.main(command_line.parse(["main", f"--workdir={folder}", *words]))
  return end.value.code


@pytest.mark.usefixtures("one_device")
def test_a_run_that_is_killed_goes_on_to_the_same_bits_and_is_used(tmp_path, capsys):
  there, alone, page = path_of("toy://b/run"), tmp_path / "alone", tmp_path / "report.html"
  assert run(alone, *WORDS) == 0
  TOY.appends_left = 23  # of lines and events
  with pytest.raises(Killed), flagsaver.flagsaver():
    main.main(command_line.parse(["main", f"--workdir={there}", *WORDS]))
  TOY.appends_left = 10**9
  stopped = checkpoint.available(there)
  assert stopped
  assert stopped[-1] < metrics_log.read_lines(there)[-1]["step"] < 10
  with TOY.lock(there / "lock"):
    assert run(there, *WORDS) == 2
  assert "--workdir=toy://b/run is in use by another run" in capsys.readouterr().err
  assert run(there, *WORDS) == 0
  assert f"resuming after step {stopped[-1]}" in capsys.readouterr().out
  assert_equal_ends(there, alone, step=10)
  assert names(there) == names(alone)

  assert run(there, "--mode=evaluate") == 0
  assert files.read_json(there / "evaluation.json", most=10**6)["step"] == 10
  report.main([str(there), f"--output={page}"])
  assert "Run run" in page.read_text()
  visualize.main(["mistakes", f"--source={there}", f"--output={tmp_path}/pictures"])
  assert (tmp_path / "pictures" / "mistakes_test.png").exists()
  export.main([f"--source={there}", f"--output={there}/w.npz", "--verify"])
  start = f"--config.init_from={there}/w.npz", "--config.report=False", "--config.duration.steps=2"
  assert run("toy://b/another", *WORDS, *start) == 0
  assert not TOY.locks
  assert not list(pathlib.Path.cwd().glob("toy:*"))


def names(folder):
  """What lies in a workdir, but for arrays, locks, and events, whose names tell the time."""
  left_out = ("events", "compiled", "lock")
  paths = (path for path in files.files_below(folder) if not path.startswith(left_out))
  return {path for path in paths if "/state/" not in path}


def test_its_paths_are_never_opened_as_files_of_this_machine():
  path = path_of("toy://b/run") / "x" / "y.json"
  assert (str(path), path.scheme) == ("toy://b/run/x/y.json", "toy")
  assert isinstance(path.parent, UrlPath)
  assert path.parent.name == "x"
  assert path_of(str(path)) == path.absolute() == path
  with pytest.raises(TypeError, match="not on this machine"):
    os.stat(path)


def test_a_configuration_beside_weights_is_read_from_it(tmp_path):
  save_file(timm.to_timm(families.params("vit")), tmp_path / "w.safetensors")
  settings = {"architecture": "mine", "model_args": {"num_heads": 2}}
  (tmp_path / "config.json").write_text(json.dumps(settings))
  files.copy(tmp_path, path_of("toy://b/timm"))
  here, there = (
    weights.read(path_of(f"{place}/w.safetensors")) for place in (tmp_path, "toy://b/timm")
  )
  assert here.card == there.card
  families.assert_same_bits(here.params, there.params)


def test_pickled_weights_are_converted_in_it():
  torch = pytest.importorskip("torch", reason="torch is not installed")
  stream = io.BytesIO()
  torch.save({"a.weight": torch.ones(2)}, stream)
  files.write_bytes(path_of("toy://b/w.pth"), stream.getvalue())
  convert_pickle.main(["--source=toy://b/w.pth", "--output=toy://b/w.safetensors"])
  with files.local_copy(path_of("toy://b/w.safetensors")) as place:
    assert (load_file(place)["a.weight"] == 1).all()


def test_images_are_read_from_it(tmp_path):
  made = digit_files.folder(tmp_path / "digits")
  files.copy(tmp_path / "digits", path_of("toy://bucket/digits"))
  here, there = (sources.open_source(spec) for spec in (made.spec, "folder:toy://bucket/digits"))
  assert (there.distant, there.identity) == (True, here.identity)
  assert [there[i].image for i in range(len(there))] == [here[i].image for i in range(len(here))]
  files.write_bytes(path_of(there.name(0)), b"x")
  with pytest.raises(ChangedError):
    there[0]
