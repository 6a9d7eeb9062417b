"""Checkpoints: the same bits back, any sharding, damage found, misfits named."""

import dataclasses
import functools
import json
import logging
import os
import shutil
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax import models
from vit_jax.config.changes import changes
from vit_jax.learning import optim, state
from vit_jax.learning.classification import Classification
from vit_jax.storage import checkpoint, manifest, save_errors, saving

MODEL = dict(name="ViT-Ti/4", depth=2, width=64, mlp_dim=256, heads=2, num_classes=3)
CONFIG = c.to_dict(c.Config())
META = {"config": CONFIG, "class_names": ["ant", "bee", "cat"]}


def mesh(data, fsdp):
  devices = jax.devices()[: data * fsdp]
  auto = (jax.sharding.AxisType.Auto,) * 2
  return jax.make_mesh((data, fsdp), ("data", "fsdp"), devices=devices, axis_types=auto)


def abstract(on=None, optimizer=None, ema=True, **model):
  init = functools.partial(
    state.init,
    Classification(models.create(**MODEL | model)),
    optim.make(optimizer or c.Optimizer()),
    seed=0,
    image_size=8,
    with_ema=ema,
  )
  return init, state.abstract(init, on or mesh(1, 1))


@functools.cache
def example():
  init, shapes = abstract(mesh(2, 4))
  made = state.create(init, shapes)
  noise = np.random.default_rng(0)
  made = jax.tree.map(
    lambda x: jax.device_put((x + noise.normal(size=x.shape)).astype(x.dtype), x.sharding), made
  )
  return dataclasses.replace(made, step=jnp.int32(7), bad_examples=jnp.int32(2))


def at_step(step):
  return dataclasses.replace(example(), step=jnp.int32(step))


def opened(folder, keep_last=3, keep_every=0):
  return saving.Checkpoints(folder, keep_last=keep_last, keep_every=keep_every)


def saved(folder, *steps, **options):
  checkpoints = opened(folder, **options)
  for step in steps:
    checkpoints.save(at_step(step), META)
  checkpoints.close()


def restore(folder, shapes=None):
  checkpoints = opened(folder)
  try:
    return checkpoints.restore(shapes or abstract(mesh(2, 4))[1], META)
  finally:
    checkpoints.close()


@pytest.mark.parametrize("on", [(1, 1), (8, 1), (1, 8), (2, 4)])
def test_the_same_bits_come_back_on_any_mesh(tmp_path, on):
  saved(tmp_path, 7)
  shapes = abstract(mesh(*on))[1]
  restored = restore(tmp_path, shapes)
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
  saved(tmp_path, *range(1, 11), keep_last=2, keep_every=4)
  assert checkpoint.available(tmp_path) == [4, 8, 9, 10]


def test_a_checkpoint_holds_config_class_names_and_manifest(tmp_path):
  saved(tmp_path, 7)
  folder = tmp_path / "checkpoints" / "7"
  meta = checkpoint.read_meta(folder)
  assert meta["config"] == json.loads(json.dumps(CONFIG))
  assert meta["class_names"] == META["class_names"]
  sums = json.loads((folder / "manifest.json").read_text())
  files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
  assert files - {"manifest.json"} == sums.keys()
  assert all(len(value) == 64 for value in sums.values())


def test_a_byte_changed_anywhere_in_any_file_is_found(tmp_path):
  saved(tmp_path, 7)
  folder = tmp_path / "checkpoints" / "7"
  rng = np.random.default_rng(0)
  assert not manifest.damage_of(folder)
  for path in [path for path in folder.rglob("*") if path.is_file()]:
    whole = path.read_bytes()
    places = {0, len(whole) - 1, *rng.integers(len(whole), size=8).tolist()}
    blanks = [i for i, byte in enumerate(whole) if byte in b" \n"][:2]
    changed = [(place, whole[place] ^ 1 << int(rng.integers(8))) for place in places]
    # What JSON does not tell from what was there.
    changed += [(place, ord("\t")) for place in blanks] + [(place, ord("\r")) for place in blanks]
    for place, byte in changed:
      path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
      assert manifest.damage_of(folder), (path, place, byte)
    path.write_bytes(whole)
  assert not manifest.damage_of(folder)


def flip_a_bit(folder):
  path = max((folder / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
  data = bytearray(path.read_bytes())
  data[len(data) // 2] ^= 1
  path.write_bytes(data)


def truncate(folder):
  path = max((folder / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
  path.write_bytes(path.read_bytes()[:-1])


def remove(folder):
  next(p for p in (folder / "state").rglob("*") if p.is_file()).unlink()


def add(folder):
  (folder / "state" / "extra").write_text("")


def forget_manifest(folder):
  (folder / "manifest.json").unlink()


def change_class_names(folder):
  path = folder / "meta" / "metadata"
  path.write_text(path.read_text().replace("bee", "bug"))


def manifest_of(data):
  return lambda folder: (folder / "manifest.json").write_bytes(data)


def manifest_that_waits(folder):
  (folder / "manifest.json").unlink()
  os.mkfifo(folder / "manifest.json")


def huge_manifest(folder):
  with (folder / "manifest.json").open("wb") as file:
    file.truncate(2**40)


def no_folder(folder):
  shutil.rmtree(folder)
  folder.write_text("")


def copy_of_another_step(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.with_name("7"), folder)


def orbax_metadata(folder):
  (folder / "_CHECKPOINT_METADATA").write_text("[]")


MANIFESTS = [b"[]", b"null", b"3", b"{}", b'{"a\\nb": 3}', b"\xff", b"", b"[" * 10**5]
DAMAGES = [
  flip_a_bit,
  truncate,
  remove,
  add,
  forget_manifest,
  change_class_names,
  manifest_that_waits,
  huge_manifest,
  no_folder,
  copy_of_another_step,
  orbax_metadata,
  *map(manifest_of, MANIFESTS),
]


@pytest.fixture(scope="module")
def steps_7_and_9(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  saved(folder, 7, 9)
  return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
  tmp_path, steps_7_and_9, damage, caplog
):
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  damage(tmp_path / "checkpoints" / "9")
  assert int(restore(tmp_path).step) == 7
  assert "checkpoints/9 IS DAMAGED" in caplog.text
  assert checkpoint.available(tmp_path) == [7]
  assert "\n" not in caplog.messages[-1]
  assert (tmp_path / "checkpoints-damaged" / "9").exists()
  if damage in (flip_a_bit, no_folder):
    saved(tmp_path, 9)  # its place is free again
    assert int(restore(tmp_path).step) == 9


@pytest.mark.parametrize("name", ["²", "٣", "007", "-1", "x_5", "1e3", " 9", "notes.txt"])
def test_what_is_not_named_as_a_step_is_left_alone(tmp_path, name):
  saved(tmp_path, 7)
  (tmp_path / "checkpoints" / name).mkdir()
  assert int(restore(tmp_path).step) == 7
  saved(tmp_path, 9)
  assert checkpoint.available(tmp_path) == [7, 9]
  assert checkpoint.find(tmp_path).name == "9"
  assert (tmp_path / "checkpoints" / name).is_dir()


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path):
  saved(tmp_path, 7, 9)
  for step in ("7", "9"):
    flip_a_bit(tmp_path / "checkpoints" / step)
  with pytest.raises(checkpoint.CheckpointError, match=r"steps \[9, 7\]"):
    restore(tmp_path)


def test_an_interrupted_save_is_no_checkpoint(tmp_path):
  saved(tmp_path, 7)
  half_written = tmp_path / "checkpoints" / "9.orbax-checkpoint-tmp"
  half_written.mkdir()
  assert int(restore(tmp_path).step) == 7
  assert not half_written.exists()
  assert checkpoint.available(tmp_path) == [7]


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    (dict(width=32), r"config\.model\.width: 0 -> 32"),
    (dict(optimizer=c.Optimizer(kind="sgd")), r"optimizer"),
    (dict(ema=False), r"ema/.*the config wants absent"),
    (dict(num_classes=4), r"head/bias is float32\(3,\), the config wants float32\(4,\)"),
    (dict(optimizer=c.Optimizer(moment_dtype="bfloat16")), r"mu/.*wants bfloat16"),
  ],
)
def test_a_config_that_does_not_fit_is_told_what_differs(tmp_path, changes, message):
  saved(tmp_path, 7)
  now = c.to_dict(c.Config())
  if "width" in changes:
    now["model"]["width"] = 32
  checkpoints = opened(tmp_path)
  with pytest.raises(c.ConfigError, match=message):
    checkpoints.restore(abstract(**changes)[1], META | {"config": now})
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [7]  # nothing was thrown away


@pytest.mark.parametrize(
  ("names", "message"),
  [
    (["ant", "cat", "bee"], r"in another order: class 1 is 'bee' there and 'cat' in config\.data"),
    (["ant", "bee", "dog"], r"class 2 is 'cat' there and 'dog' in config\.data\.train"),
    (["ant", "bee", "cat", "dog"], r"the first 3 are equal"),
    (["ant", "bee"], r"--config\.init_from=/\S+_on_with3, which orders the head"),
  ],
)
def test_a_run_does_not_go_on_with_other_classes(tmp_path, names, message):
  saved(tmp_path, 7)
  checkpoints = opened(tmp_path)
  with pytest.raises(c.ConfigError, match=message):
    checkpoints.restore(abstract()[1], META | {"class_names": names})
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [7]


@pytest.mark.parametrize("kind", [jax.errors.JaxRuntimeError, ValueError])
def test_a_host_lost_in_a_save_is_not_taken_for_a_disk_that_fails(tmp_path, monkeypatch, kind):
  def lost(*_, **__):
    raise kind("UNKNOWN: Connection closed by peer")

  checkpoints = opened(tmp_path)
  with monkeypatch.context() as patch:
    patch.setattr(checkpoints._manager, "save", lost)
    patch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(kind, match="closed by peer"):
      checkpoints.save(at_step(7), META)
    assert not checkpoints.failure(wait=False)
    # The same in a thread of orbax, which tells of it in its log.
    patch.setattr(saving, "is_writing", lambda: True)
    try:
      lost()
    except kind:
      record = ("absl", logging.ERROR, "orbax.py", 0, "failed", (), sys.exc_info())
      checkpoints._errors.filter(logging.LogRecord(*record))
    with pytest.raises(kind, match="closed by peer"):
      checkpoints.failure(wait=False)
    patch.setattr(jax, "process_count", lambda: 1)
    checkpoints.save(at_step(7), META)
    assert "7 could not be saved (UNKNOWN" in checkpoints.failure(wait=False)
  checkpoints.close()


@pytest.mark.parametrize(("place", "shown"), [("/lib/orbax/path.py", False), ("ours.py", True)])
def test_what_asyncio_tells_late_of_a_failed_save_is_not_shown(place, shown):
  ear = save_errors.SaveErrors()
  try:
    exec(compile("raise OSError(27, 'File too large')", place, "exec"))
  except OSError:
    told = ("asyncio", logging.ERROR, "base_events.py", 0, "never retrieved", (), sys.exc_info())
  assert ear.filter(logging.LogRecord(*told)) == shown
  ear.close()


def test_after_a_failed_save_the_screen_is_guarded_to_the_end(tmp_path, monkeypatch):
  def full(*_, **__):
    raise OSError(28, "No space left on device")

  checkpoints = opened(tmp_path)
  with monkeypatch.context() as patch:
    patch.setattr(checkpoints._manager, "save", full)
    checkpoints.save(at_step(7), META)
  assert "No space left" in checkpoints.failure(wait=True)
  checkpoints.save(at_step(8), META)
  checkpoints.close()
  assert checkpoint.available(tmp_path) == [8]
  assert checkpoints._errors in logging.getLogger("asyncio").filters
  checkpoints._errors.close()


def test_parameters_alone_as_numpy(tmp_path):
  saved(tmp_path, 7)
  folder = checkpoint.find(tmp_path)
  for ema, expected in ((False, example().params), (True, example().ema)):
    params = checkpoint.load_params(folder, ema=ema)
    assert all(isinstance(x, np.ndarray) for x in jax.tree.leaves(params))
    chex.assert_trees_all_equal(params, jax.device_get(expected))


def test_no_moving_average_to_load(tmp_path):
  init, shapes = abstract(ema=False)
  checkpoints = opened(tmp_path)
  checkpoints.save(state.create(init, shapes), META)
  checkpoints.close()
  with pytest.raises(checkpoint.CheckpointError, match=r"no moving average"):
    checkpoint.load_params(checkpoint.find(tmp_path), ema=True)


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


def test_changes_between_configs():
  old = {"a": 1, "b": {"c": (1, 2), "d": 4}}
  new = {"a": 1, "b": {"c": [1, 2], "d": 5}}
  assert changes(old, new) == ["config.b.d: 4 -> 5"]


def test_a_setting_that_a_release_did_not_have_counts_as_its_default():
  old, new = c.to_dict(c.Config()), c.to_dict(c.Config())
  del old["stall_seconds"], old["optimizer"]["trainable"]
  assert changes(old, new) == []
  new["optimizer"]["trainable"] = "head"
  assert changes(old, new) == ["config.optimizer.trainable: '.*' -> 'head'"]
