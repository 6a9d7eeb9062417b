"""Checkpoints: restored bits, other shardings, damage, and checkpoints that do not fit."""

import itertools
import json
import pathlib
import resource
import shutil

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import resolved
from tests.storage.states import (
  CONFIG,
  META,
  abstract,
  at_step,
  example,
  flip_a_bit,
  mesh,
  no_changes,
  opened,
  restore,
  saved,
)
from vit_jax import config as c
from vit_jax import registry, weights
from vit_jax.config.recorded import changes
from vit_jax.learning import state
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process import agreement
from vit_jax.storage import arrays, checkpoint, files, manifest, workdir
from vit_jax.storage.local import LOCAL
from vit_jax.storage.paths import HERE
from vit_jax.storage.saving import OLD


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A workdir with the checkpoint of step 7; not to be changed."""
  folder = tmp_path_factory.mktemp("run")
  saved(folder, 7)
  return folder


@pytest.mark.parametrize("on", [(1, 1), (1, 8)])
def test_the_same_bits_come_back_on_any_mesh(run, on):
  shapes = abstract(mesh(*on))[1]
  restored = restore(run, shapes)
  chex.assert_trees_all_equal(jax.device_get(restored), jax.device_get(example()))
  chex.assert_trees_all_equal(
    jax.tree.map(lambda x: x.sharding, restored), jax.tree.map(lambda x: x.sharding, shapes)
  )


def test_arrays_may_be_donated_as_soon_as_save_returns(tmp_path):
  expected = jax.device_get(example())
  checkpoints = opened(tmp_path)
  copy = jax.jit(lambda s: jax.tree.map(jnp.copy, s))(at_step(7))
  checkpoints.save(copy, META)
  overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
  jax.block_until_ready(overwrite(copy))
  checkpoints.close()
  chex.assert_trees_all_equal(jax.device_get(restore(tmp_path)), expected)


def test_no_checkpoint_at_all_is_none(tmp_path):
  assert restore(tmp_path) is None


def test_the_last_ones_and_each_kth_are_kept(tmp_path):
  saved(tmp_path, *range(1, 6), keep_last=1, keep_every=3)
  assert checkpoint.available(tmp_path) == [3, 5]


def test_a_checkpoint_holds_config_class_names_and_manifest(run):
  folder = run / "checkpoints" / "7"
  meta = checkpoint.read_meta(folder)
  assert meta["config"] == json.loads(json.dumps(CONFIG))
  assert meta["class_names"] == META["class_names"]
  sums = json.loads((folder / "manifest.json").read_text())
  files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
  assert files - {"manifest.json"} == sums.keys()
  assert all(len(value) == 64 for value in sums.values())


def test_an_interrupted_save_is_no_checkpoint(tmp_path):
  saved(tmp_path, 7)
  half_written = tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp"
  half_written.mkdir()
  assert int(restore(tmp_path).step) == 7
  assert not half_written.exists()
  assert checkpoint.available(tmp_path) == [7]


@pytest.mark.parametrize(
  ("different", "message"),
  [
    (dict(width=32), r"config\.model\.width: 768 -> 32"),
    (dict(optimizer=SGD()), r"optimizer"),
    (dict(ema=False), r"ema/.*the config wants absent"),
    (dict(num_classes=4), r"head/bias is float32\(3,\), the config wants float32\(4,\)"),
    (dict(optimizer=Adam(moment_dtype="bfloat16")), r"mu/.*wants bfloat16"),
  ],
)
def test_a_config_that_does_not_fit_is_told_what_differs(run, different, message):
  now = c.to_dict(resolved.config())
  if "width" in different:
    now["model"]["width"] = 32
  checkpoints = opened(run)
  with pytest.raises(c.ConfigError, match=message):
    checkpoints.restore(
      abstract(**different)[1], META["class_names"], lambda saved: changes(saved, now)
    )
  checkpoints.close()
  assert checkpoint.available(run) == [7]  # nothing was thrown away


@pytest.mark.parametrize(
  ("names", "message"),
  [
    (["ant", "cat", "bee"], "in another order: class 1 is 'bee' there and 'cat' in the tr"),
    (["ant", "bee", "dog"], r"class 2 is 'cat' there and 'dog' in the training data"),
    (["ant", "bee", "cat", "dog"], r"the first 3 are equal"),
    (["ant", "bee"], r"--config\.init_from={}, which orders the head"),
  ],
)
def test_a_run_does_not_go_on_with_other_classes(run, names, message):
  checkpoints = opened(run)
  with pytest.raises(c.ConfigError, match=message.replace("{}", str(run))):
    checkpoints.restore(abstract()[1], names, no_changes)
  checkpoints.close()
  assert checkpoint.available(run) == [7]


FULL = OSError(28, "No space left on device")


def full(*_, **__):
  raise FULL


@pytest.mark.parametrize(
  ("owner", "name"),
  [
    (files, "make_folder"),
    (arrays, "write"),
    (arrays, "merge"),
    (manifest, "write"),
    (files, "sync"),
    (files, "rename"),
  ],
)
def test_a_save_that_fails_says_why_and_the_next_one_may_succeed(
  tmp_path, monkeypatch, owner, name
):
  saved(tmp_path, 5)
  checkpoints = opened(tmp_path)
  with monkeypatch.context() as patch:
    patch.setattr(owner, name, full)
    checkpoints.save(at_step(7), META)
    checkpoints.wait()
  assert checkpoints.outcome() == (
    f"Checkpoint {tmp_path}/checkpoints/7 could not be saved (No space left on device); "
    f"the last good one is {tmp_path}/checkpoints/5"
  )
  assert checkpoints.outcome() is None
  assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["5"]
  checkpoints.save(at_step(8), META)
  checkpoints.wait()
  assert checkpoints.outcome() == ""
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [5, 8]
  assert int(restore(tmp_path).step) == 8


def test_the_other_writes_of_a_save_that_fails_end_without_a_word(tmp_path, capfd):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  state, checkpoints = at_step(7), opened(tmp_path)
  resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # Python ignores the signal
  try:
    checkpoints.save(state, META)
    checkpoints.wait()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert "could not be saved (File too large)" in checkpoints.outcome()
  checkpoints.close()
  assert capfd.readouterr() == ("", "")
  assert not list((tmp_path / "checkpoints").iterdir())


class Recording(type(LOCAL)):
  """The storage of this machine, which records what makes files last, appear or go."""

  def __init__(self, unable=None):
    """`unable` is a path that cannot be synced or removed."""
    self.calls, self.unable = [], unable

  def sync(self, path):
    self.record("sync", pathlib.Path(path))

  def rename(self, path, target):
    super().rename(path, target)
    self.record("rename", path, target)

  def remove(self, path):
    self.record("remove", path)
    super().remove(path)

  def record(self, name, path, *more):
    if path == self.unable:
      raise FULL
    self.calls.append((name, path, *more))


STORAGE = Recording()


def recorded(monkeypatch, **options):
  storages = registry.Registry({HERE: f"{__name__}:STORAGE"})
  monkeypatch.setattr(registry, "STORAGES", storages)
  monkeypatch.setattr(f"{__name__}.STORAGE", Recording(**options))
  return STORAGE.calls


def test_after_a_crash_of_the_machine_one_checkpoint_is_there(tmp_path, monkeypatch):
  saved(tmp_path, 7)
  calls, folder = recorded(monkeypatch), tmp_path / "checkpoints"
  saved(tmp_path, 8, keep_last=1)
  renamed = next(i for i, call in enumerate(calls) if call[0] == "rename")
  _, partial, target = calls[renamed]
  assert target == folder / "8"
  synced = {path for name, path, *_ in calls[:renamed] if name == "sync"}
  assert synced >= {partial / path.relative_to(target) for path in all_in(target)}
  assert calls[renamed + 1 :] == [
    ("sync", folder),
    ("sync", tmp_path),
    ("sync", tmp_path.parent),
    ("rename", folder / "7", folder / OLD / "7"),
    ("remove", folder / OLD),
  ]


def all_in(folder):
  """A folder, and the files and the folders in it that are not empty."""
  inside = (path for path in folder.rglob("*") if path.is_file() or any(path.iterdir()))
  return folder, *inside


@pytest.mark.parametrize(
  ("unable", "kept", "failed"),
  [
    ("checkpoints", [7, 8], "it may be lost if the machine crashes"),
    (f"checkpoints/{OLD}", [8], "older ones could not be removed"),
  ],
)
def test_what_fails_once_a_checkpoint_is_published_is_no_failed_save(
  tmp_path, monkeypatch, caplog, unable, kept, failed
):
  saved(tmp_path, 7)
  recorded(monkeypatch, unable=tmp_path / unable)
  checkpoints = opened(tmp_path, keep_last=1)
  checkpoints.save(at_step(8), META)
  checkpoints.wait()
  assert checkpoints.outcome() == ""
  assert f"Checkpoint 8 is saved, but {failed} (No space left on device)." in caplog.text
  assert checkpoint.available(tmp_path) == kept


def test_checkpoints_that_are_removed_cost_only_themselves(tmp_path, caplog):
  checkpoints = opened(tmp_path)
  checkpoints.save(at_step(7), META)
  checkpoints.wait()
  shutil.rmtree(tmp_path / "checkpoints")
  checkpoints.save(at_step(8), META)
  checkpoints.close()
  assert f"{tmp_path}/checkpoints was removed; it is made anew." in caplog.text
  assert checkpoint.available(tmp_path) == [8]


def test_a_save_whose_folder_was_removed_meanwhile_is_none(tmp_path, monkeypatch):
  """TensorStore would make it anew, without what was written before."""
  saved(tmp_path, 5)
  checkpoints, write = opened(tmp_path), arrays.write

  def removed(*words):
    for folder in (tmp_path / "checkpoints").glob("7.*"):
      shutil.rmtree(folder)
    write(*words)

  monkeypatch.setattr(arrays, "write", removed)
  checkpoints.save(at_step(7), META)
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [5]


def test_arrays_that_are_not_those_of_the_description_are_no_read_that_fails(tmp_path):
  saved(tmp_path, 7)
  meta = tmp_path / "checkpoints" / "7" / "meta" / "metadata"
  described = json.loads(meta.read_text())
  name = "params/head/bias"
  described["arrays"][name][0] = [4]
  meta.write_text(json.dumps(described))
  with pytest.raises(checkpoint.CheckpointError, match=r"read: .* Expected \"shape\" of \[4\]"):
    checkpoint.read_arrays(meta.parents[1], [name])
  described["arrays"][name][0] = [2**45]
  meta.write_text(json.dumps(described))
  with pytest.raises(checkpoint.CheckpointError, match="and this machine has"):
    checkpoint.read_arrays(meta.parents[1], [name])


def test_a_run_whose_lock_was_taken_saves_nothing_more(tmp_path):
  with workdir.locked(tmp_path, first=True):
    checkpoints = opened(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(workdir.LostError, match=rf"^{tmp_path}/lock was removed or replaced"):
      checkpoints.save(at_step(7), META)
    checkpoints.close()
  assert checkpoint.available(tmp_path) == []


def test_the_best_is_kept_and_of_best_ones_that_were_not_saved_the_one_before(tmp_path):
  checkpoints = opened(tmp_path, keep_last=1)
  for step, best in ((1, 0), (2, 2), (3, 2), (5, 4), (6, 4)):
    checkpoints.save(at_step(step), META, best=best)
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [3, 6]


def test_parameters_alone_as_numpy(run):
  folder = checkpoint.find(run)
  for ema, expected in ((False, example().params), (True, example().ema)):
    params = checkpoint.load_params(folder, ema=ema)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(params))
    chex.assert_trees_all_equal(params, jax.device_get(expected))


def test_without_a_moving_average_the_parameters_are_read(tmp_path):
  init, shapes = abstract(ema=False)
  checkpoints = opened(tmp_path)
  checkpoints.save(state.create(init, shapes), META)
  checkpoints.close()
  assert not weights.read(tmp_path).card.average


class TestFind:
  def test_newest_or_named(self, tmp_path):
    saved(tmp_path, 7, 9)
    assert checkpoint.find(tmp_path).name == "9"
    assert checkpoint.find(tmp_path, 7).name == "7"

  def test_newest_that_is_whole(self, tmp_path):
    saved(tmp_path, 7, 9)
    flip_a_bit(tmp_path / "checkpoints" / "9")
    assert checkpoint.find(tmp_path).name == "7"
    assert checkpoint.available(tmp_path) == [7, 9]  # looking changes nothing
    with pytest.raises(checkpoint.CheckpointError, match="checkpoints/9 is damaged: changed"):
      checkpoint.find(tmp_path, 9)

  def test_none(self, tmp_path):
    with pytest.raises(checkpoint.CheckpointError, match="no checkpoint at all"):
      checkpoint.find(tmp_path)
    saved(tmp_path, 7)
    with pytest.raises(checkpoint.CheckpointError, match=r"of step 8: there are steps \[7\]"):
      checkpoint.find(tmp_path, 8)

  def test_a_process_follows_the_first_one(self, tmp_path, monkeypatch):
    saved(tmp_path, 7, 9)
    said = iter(["7", ""])  # a candidate, and whether it is a copy
    monkeypatch.setattr(agreement, "broadcast_str", lambda _: next(said))
    assert checkpoint.find(tmp_path).name == "7"

  def test_what_was_removed_for_one_process_is_read_again_by_all(self, tmp_path, monkeypatch):
    saved(tmp_path, 7)
    calls, read = itertools.count(), []
    others = lambda own: "it is gone" if next(calls) == 1 else own
    monkeypatch.setattr(agreement, "allgather_str", lambda own: [own, others(own)])
    checkpoint.read_readable(tmp_path, 0, read.append)
    assert len(read) == 2
