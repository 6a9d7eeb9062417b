"""Checkpoints: restored bits, other shardings, damage, and checkpoints that do not fit."""

import errno
import itertools
import json
import os
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
  saving,
  watched,
)
from vit_jax import config as c
from vit_jax import weights
from vit_jax.config.recorded import changes
from vit_jax.learning import train_step
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.process import agreement
from vit_jax.storage import arrays, checkpoint, workdir
from vit_jax.storage.paths import path_of
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
  for found, wanted in zip(jax.tree.leaves(restored), jax.tree.leaves(shapes), strict=True):
    assert found.sharding == wanted.sharding


def test_arrays_may_be_donated_as_soon_as_save_returns(tmp_path):
  expected = jax.device_get(example())
  checkpoints = opened(tmp_path)
  copy = jax.jit(lambda s: jax.tree.map(jnp.copy, s))(at_step(7))
  checkpoints.save(copy, META)
  overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 - 1, s), donate_argnums=0)
  jax.block_until_ready(overwrite(copy))
  checkpoints.close()
  chex.assert_trees_all_equal(jax.device_get(restore(tmp_path)), expected)


def test_the_last_ones_and_each_kth_are_kept(tmp_path):
  saved(tmp_path, *range(1, 6), keep_last=1, keep_every=3)
  assert checkpoint.available(tmp_path) == [3, 5]


def test_what_was_saved_to_be_kept_is_kept_also_if_others_are_now(tmp_path):
  saved(tmp_path, 3, 6, keep_last=1, keep_every=3)
  saved(tmp_path, 7, 8, keep_last=1, keep_every=4)
  saved(tmp_path, 9, keep_last=1)
  assert checkpoint.available(tmp_path) == [3, 6, 8, 9]


@pytest.mark.parametrize("meta", ["{}", "not JSON", None])
def test_of_checkpoints_that_do_not_say_it_each_kth_is_kept(tmp_path, meta):
  """Those of earlier versions, and damaged ones."""
  saved(tmp_path, 2, 3, 4)
  for step in (2, 3, 4):
    path = tmp_path / "checkpoints" / str(step) / checkpoint.META
    path.unlink()
    if meta is not None:
      path.write_text(meta)
  saved(tmp_path, 5, keep_last=1, keep_every=3)
  assert checkpoint.available(tmp_path) == [3, 5]


def test_the_best_is_kept_and_of_best_ones_that_were_not_saved_the_one_before(tmp_path):
  checkpoints = opened(tmp_path, keep_last=1)
  for step, best in ((1, 0), (2, 2), (3, 2), (5, 4), (6, 4)):
    saving(checkpoints, step, best=best)
  assert checkpoint.available(tmp_path) == [3, 6]


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
  assert restore(tmp_path) is None
  saved(tmp_path, 7)
  half_written = tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp"
  half_written.mkdir()
  assert int(restore(tmp_path).step) == 7
  assert not half_written.exists()
  assert checkpoint.available(tmp_path) == [7]


def assert_refused(run, message, names=META["class_names"], **different):
  now = c.to_dict(resolved.config())
  now["model"]["width"] = different.get("width", now["model"]["width"])
  differ = (lambda was: changes(was, now)) if different else no_changes
  with pytest.raises(c.ConfigError, match=message.replace("{}", str(run))):
    opened(run).restore(abstract(**different)[1], names, differ)
  assert checkpoint.available(run) == [7]  # nothing was thrown away


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
  assert_refused(run, message, **different)


@pytest.mark.parametrize(
  ("names", "message"),
  [
    (["ant", "cat", "bee"], "in another order: class 1 is 'bee' there and 'cat' in the tr"),
    (["ant", "bee", "dog"], r"class 2 is 'cat' there and 'dog' in the training data"),
    (["ant", "bee", "cat", "dog"], r"the first 3 are equal"),
  ],
)
def test_a_run_does_not_go_on_with_other_classes(run, names, message):
  assert_refused(run, message, names)


ORDERS = "which orders the head by class name"
RENEWS = "which begins with a new head"


@pytest.mark.parametrize(
  ("names", "new_head", "end"),
  [
    (["bee", "ant"], False, f"--workdir and --config.init_from='/my run', {ORDERS}."),
    (["bee", "ant"], True, f"--config.init_from='/my run' --config.new_head=False, {ORDERS}."),
    (["ant", "cat"], False, f"--config.init_from='/my run' --config.new_head=True, {RENEWS}."),
    (["ant"], True, f"--workdir and --config.init_from='/my run', {RENEWS}."),
  ],
)
def test_with_other_classes_a_new_run_has_the_head_that_the_refusal_says(names, new_head, end):
  meta = {"class_names": ["ant", "bee"], "config": {"new_head": new_head}}
  with pytest.raises(c.ConfigError) as caught:
    checkpoint.check_classes(path_of("/my run/checkpoints/9"), meta, names)
  assert str(caught.value).endswith(end)


# --- saves that fail ---


@pytest.mark.parametrize(
  ("method", "path"),
  [
    ("make_folder", "meta"),
    ("put", "meta/metadata"),
    ("put", "manifest.json"),
    ("sync", "meta"),
    ("rename", "-1"),
  ],
)
def test_a_save_that_fails_says_why_and_the_next_one_may_succeed(tmp_path, method, path):
  saved(tmp_path, 5)
  checkpoints = opened(tmp_path)
  with watched(fails={method: path}):
    assert saving(checkpoints, 7) == (
      f"Checkpoint {tmp_path}/checkpoints/7 could not be saved (No space left on device); "
      f"the last good one is {tmp_path}/checkpoints/5"
    )
  assert checkpoints.outcome() is None
  assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["5"]
  assert saving(checkpoints, 8) == ""
  assert checkpoint.available(tmp_path) == [5, 8]
  assert int(restore(tmp_path).step) == 8


def test_the_other_writes_of_a_save_that_fails_end_without_a_word(tmp_path, capfd):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  checkpoints = opened(tmp_path)
  at_step(7)  # made before the limit holds
  # Enough for the description, and not for the arrays. Python ignores the signal.
  resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
  try:
    assert "could not be saved (File too large)" in saving(checkpoints, 7)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert capfd.readouterr() == ("", "")
  assert not list((tmp_path / "checkpoints").iterdir())


def test_after_a_crash_of_the_machine_one_checkpoint_is_there(tmp_path):
  saved(tmp_path, 7)
  folder = tmp_path / "checkpoints"
  with watched() as storage:
    saved(tmp_path, 8, keep_last=1)
  calls = [call for call in storage.calls if call[0] in ("sync", "rename", "remove")]
  renamed = next(i for i, call in enumerate(calls) if call[0] == "rename")
  _, partial, target = calls[renamed]
  assert target == folder / "8"
  synced = {path for name, path, *_ in calls[:renamed] if name == "sync"}
  files = [path for path in target.rglob("*") if path.is_file()]
  folders = {target, *(path for path in target.rglob("*") if path.is_dir() and any(path.iterdir()))}
  assert synced >= {partial / path.relative_to(target) for path in (*files, *folders)}
  assert calls[renamed + 1 :] == [
    ("sync", folder),
    ("sync", tmp_path),
    ("sync", tmp_path.parent),
    ("rename", folder / "7", folder / OLD / "7"),
    ("remove", folder / OLD),
  ]


@pytest.mark.parametrize(
  ("fails", "kept", "failed"),
  [
    ({"sync": "/checkpoints"}, [7, 8], "it may be lost if the machine crashes"),
    ({"remove": OLD}, [8], "older ones could not be removed"),
  ],
)
def test_what_fails_once_a_checkpoint_is_published_is_no_failed_save(
  tmp_path, caplog, fails, kept, failed
):
  saved(tmp_path, 7)
  checkpoints = opened(tmp_path, keep_last=1)
  with watched(fails=fails):
    assert saving(checkpoints, 8) == ""
  assert f"Checkpoint 8 is saved, but {failed} (No space left on device)." in caplog.text
  assert checkpoint.available(tmp_path) == kept


def test_a_save_that_was_published_without_an_answer_is_saved_by_the_next_try(
  tmp_path, monkeypatch
):
  """Network file systems and buckets may do what they then report as failed."""
  checkpoints = opened(tmp_path)
  rename = os.rename

  def unanswered(path, target):
    rename(path, target)
    raise OSError(errno.EIO, "Input/output error")

  with monkeypatch.context() as patch:
    patch.setattr(os, "rename", unanswered)
    assert "could not be saved" in saving(checkpoints, 7)
  assert saving(checkpoints, 7) == ""
  assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["7"]
  assert int(restore(tmp_path).step) == 7


def test_checkpoints_that_are_removed_cost_only_themselves(tmp_path, caplog):
  checkpoints = opened(tmp_path)
  saving(checkpoints, 7)
  shutil.rmtree(tmp_path / "checkpoints")
  saving(checkpoints, 8)
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
  assert "was removed" in saving(checkpoints, 7)
  assert checkpoint.available(tmp_path) == [5]


def test_a_run_whose_lock_was_taken_saves_nothing_more(tmp_path):
  with workdir.locked(tmp_path, first=True):
    checkpoints = opened(tmp_path)
    (tmp_path / "lock").unlink()
    with pytest.raises(workdir.LostError, match=rf"^{tmp_path}/lock was removed or replaced"):
      checkpoints.save(at_step(7), META)
  assert checkpoint.available(tmp_path) == []


# --- reading ---


@pytest.mark.parametrize(
  ("length", "message"),
  [(4, r"read: .* Expected \"shape\" of \[4\]"), (2**45, "and this machine has")],
)
def test_arrays_that_are_not_those_of_the_description_are_no_read_that_fails(
  tmp_path, length, message
):
  saved(tmp_path, 7)
  meta = tmp_path / "checkpoints" / "7" / "meta" / "metadata"
  described = json.loads(meta.read_text())
  described["arrays"]["params/head/bias"][0] = [length]
  meta.write_text(json.dumps(described))
  with pytest.raises(checkpoint.CheckpointError, match=message):
    checkpoint.read_arrays(meta.parents[1], ["params/head/bias"])


def test_parameters_alone_as_numpy(run):
  folder = checkpoint.find(run)
  for ema, expected in ((False, example().params), (True, example().ema)):
    params = checkpoint.load_params(folder, ema=ema)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(params))
    chex.assert_trees_all_equal(params, jax.device_get(expected))


def test_without_a_moving_average_the_parameters_are_read(tmp_path):
  init, shapes = abstract(ema=False)
  checkpoints = opened(tmp_path)
  checkpoints.save(train_step.create_state(init, shapes), META)
  checkpoints.close()
  assert not weights.read(tmp_path).card.average


def test_the_newest_that_is_whole_is_found_or_the_one_that_is_named(tmp_path):
  with pytest.raises(checkpoint.CheckpointError, match="no checkpoint at all"):
    checkpoint.find(tmp_path)
  saved(tmp_path, 7, 9)
  assert checkpoint.find(tmp_path).name == "9"
  assert checkpoint.find(tmp_path, 7).name == "7"
  with pytest.raises(checkpoint.CheckpointError, match=r"of step 8: there are steps \[7, 9\]"):
    checkpoint.find(tmp_path, 8)
  flip_a_bit(tmp_path / "checkpoints" / "9")
  assert checkpoint.find(tmp_path).name == "7"
  assert checkpoint.available(tmp_path) == [7, 9]  # looking changes nothing
  with pytest.raises(checkpoint.CheckpointError, match="checkpoints/9 is damaged: changed"):
    checkpoint.find(tmp_path, 9)


def test_a_process_follows_the_first_one(tmp_path, monkeypatch):
  saved(tmp_path, 7, 9)
  said = iter(["7", ""])  # a candidate, and whether it is a copy
  monkeypatch.setattr(agreement, "broadcast_str", lambda _: next(said))
  assert checkpoint.find(tmp_path).name == "7"


def test_what_was_removed_for_one_process_is_read_again_by_all(run, monkeypatch):
  calls, read = itertools.count(), []
  others = lambda own: "it is gone" if next(calls) == 1 else own
  monkeypatch.setattr(agreement, "allgather_str", lambda own: [own, others(own)])
  checkpoint.read_readable(run, 0, read.append)
  assert len(read) == 2
