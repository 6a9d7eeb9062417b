"""What a run that resumes takes from its checkpoint, and what it refuses to change."""

import dataclasses
import json
import os

import jax.numpy as jnp
import pytest

from vit_jax import config as c
from vit_jax import models, recipes
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.storage import checkpoint, manifest
from vit_jax.training import messages, resumed


def saved(workdir, step, settings):
  """The parts of a checkpoint that these functions read."""
  meta = workdir / "checkpoints" / str(step) / "meta" / "metadata"
  meta.parent.mkdir(parents=True)
  meta.write_text(settings if isinstance(settings, str) else json.dumps({"config": settings}))
  manifest.write(meta.parents[1])
  return workdir


# --- the description of a checkpoint ---


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", "[" * 100_000, '{"config": 3}'])
def test_the_newest_description_that_can_be_read_counts(tmp_path, damage):
  workdir = saved(tmp_path, 9, {"seed": 1})
  saved(workdir, 10, damage)
  assert checkpoint.described(workdir) == (9, {"config": {"seed": 1}})
  assert checkpoint.described(workdir, 10) == (0, {})
  saved(workdir, 11, {"seed": 2})
  assert checkpoint.described(workdir)[0] == 11
  assert checkpoint.described(workdir, 9)[0] == 9
  assert checkpoint.described(workdir / "checkpoints" / "9")[0] == 9
  description = workdir / "checkpoints/11" / checkpoint.META
  description.write_text(description.read_text().replace("2", "3"))  # not as it was written
  assert checkpoint.described(workdir)[0] == 9
  for other in ("checkpoints/09", "checkpoints-damaged/9", "checkpoints"):
    (tmp_path / other).mkdir(parents=True, exist_ok=True)
    assert checkpoint.named_by(tmp_path / other) == (tmp_path / other, [])


def test_a_checkpoint_of_a_stranger_is_read_without_waiting(tmp_path):
  meta = tmp_path / "checkpoints/9/meta/metadata"
  meta.parent.mkdir(parents=True)
  os.mkfifo(meta)
  assert checkpoint.described(tmp_path) == (0, {})


# --- what only counts before the first step ---

STARTED = c.Config(init_from="w.npz", new_head=True, model=c.Model(head_bias=-10.0))


def begun(folder, config=STARTED, step=9):
  return resumed.read(saved(folder, step, json.loads(json.dumps(c.to_dict(config)))))


@pytest.mark.parametrize(
  ("changes", "said"),
  [
    (dict(init_from="other.npz"), "config.init_from: 'w.npz' -> 'other.npz'"),
    (dict(init_from=""), "config.init_from: 'w.npz' -> ''"),
    (dict(new_head=False), "config.new_head: True -> False"),
    (dict(new_positions=True), "config.new_positions: False -> True"),
    (dict(keep_representation=True), "config.keep_representation: False -> True"),
    (dict(class_names="data"), "config.class_names: '' -> 'data'"),
    (dict(model=c.Model()), "config.model.head_bias: -10.0 -> 0.0"),
    (dict(optimizer=Adam(ema=0.9)), "config.optimizer.ema: 0.0 -> 0.9"),
    (dict(optimizer=Adam(ema_corrected=False)), "config.optimizer.ema_corrected: True -> "),
  ],
)
def test_what_a_run_started_from_cannot_be_changed(tmp_path, changes, said):
  before = begun(tmp_path)
  with pytest.raises(c.ConfigError) as caught:
    resumed.going_on(dataclasses.replace(STARTED, **changes, seed=5), before)
  assert str(caught.value).startswith(f"{tmp_path} has 9 steps already, and {said}")
  new = resumed.Begun(tmp_path)
  assert resumed.going_on(dataclasses.replace(STARTED, **changes), new).init_from != "x"


def test_other_settings_may_change_and_a_path_stays_as_it_was_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  before, path = begun(tmp_path / "run"), str(tmp_path / "." / "w.npz")
  changed = dataclasses.replace(STARTED, init_from=path, batch_size=7, seed=5)
  assert resumed.going_on(changed, before) == dataclasses.replace(changed, init_from="w.npz")


# --- a run without a step left ---


def finished(folder, *, evaluated=True):
  folder.mkdir(exist_ok=True)
  line = {"step": 9, "val/top1": 0.5} if evaluated else {"step": 9, "loss": 1.0}
  (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
  return begun(folder)


DIGITS = c.Data(evaluate={"val": c.EvaluationSet("digits", "test")})


@pytest.mark.parametrize(
  ("changes", "total", "said"),
  [
    (dict(schedule=c.Schedule(learning_rate=0.5)), 9, "config.schedule.learning_rate: "),
    (dict(seed=3), 8, "config.seed: 0 -> 3"),
    (dict(duration=c.Duration(steps=4)), 4, "config.duration.steps: 0 -> 4"),
    (dict(data=DIGITS), 9, "config.data.evaluate.val.source: '' -> 'digits'"),
  ],
)
def test_a_finished_run_refuses_what_has_no_effect(tmp_path, changes, total, said):
  before, config = finished(tmp_path), dataclasses.replace(STARTED, **changes)
  with pytest.raises(c.ConfigError) as caught:
    resumed.check_counts(config, before, total)
  assert str(caught.value).startswith(f"{tmp_path} has all of its 9 steps, so {said}")
  resumed.check_counts(config, before, 10)  # a longer run
  resumed.check_counts(config, resumed.Begun(tmp_path), total)  # a new one


def test_a_finished_run_takes_what_has_an_effect(tmp_path):
  config = dataclasses.replace(STARTED, report=False, mesh=c.Mesh(fsdp=2), stall_seconds=9.0)
  resumed.check_counts(config, finished(tmp_path / "a"), 9)
  unscored = finished(tmp_path / "b", evaluated=False)
  resumed.check_counts(dataclasses.replace(STARTED, data=DIGITS), unscored, 9)
  read = dataclasses.replace(DIGITS, threads=2, ahead=1, max_pixels=9_999)
  other = dataclasses.replace(STARTED, batch_size=2, accumulation=2, data=read)
  resumed.check_counts(other, unscored, 9)  # as the reader of the missing evaluation takes them
  with pytest.raises(c.ConfigError, match=r"config\.data\.threads"):
    resumed.check_counts(other, finished(tmp_path / "c"), 9)
  unused = dataclasses.replace(STARTED, data=dataclasses.replace(DIGITS, flip=False))
  with pytest.raises(c.ConfigError, match=r"config\.data\.flip"):
    resumed.check_counts(unused, unscored, 9)


def test_a_run_that_was_stopped_early_has_no_step_left(tmp_path):
  watch = c.EarlyStopping(metric="val/top1", patience=1)
  config = dataclasses.replace(STARTED, early_stopping=watch)
  before = begun(tmp_path, config)
  lines = [{"step": step, "val/top1": 0.5} for step in (3, 9)]
  (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
  other = dataclasses.replace(config, seed=3)
  with pytest.raises(c.ConfigError, match=r"config\.seed"):
    resumed.check_counts(other, before, 100)
  patient = dataclasses.replace(other, early_stopping=dataclasses.replace(watch, patience=2))
  resumed.check_counts(patient, before, 100)


# --- the type of activations ---


def compute_type(platform, recorded, asked="auto"):
  return resumed.typed(c.Model(compute_dtype=asked), recorded, platform).compute_dtype


def test_a_new_run_takes_the_type_that_is_quick_on_its_devices():
  kinds = {platform: compute_type(platform, {}) for platform in ("cpu", "gpu", "tpu", "")}
  assert kinds == {"cpu": "float32", "gpu": "bfloat16", "tpu": "bfloat16", "": "auto"}
  for model in (3, {}, {"compute_dtype": "float8"}):  # of a stranger
    assert compute_type("cpu", {"model": model}) == "float32"


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_run_goes_on_in_its_type_on_any_device(kind, platform):
  recorded = {"model": {"compute_dtype": kind}}
  assert compute_type(platform, recorded) == kind
  for asked in ("float32", "bfloat16"):  # a type that is named is used
    assert compute_type(platform, recorded, asked=asked) == asked


def test_recipes_for_fine_tuning_leave_the_type_to_the_devices():
  """Activations are in bfloat16 in a program that is compiled for a pod, without a run."""
  for recipe in ("finetune.py:ViT-Ti/16,cifar10", "vtab.py:ViT-Ti/16,cifar-100"):
    config = recipes.load(f"configs/{recipe}")
    assert config.model.compute_dtype == "auto"
    assert models.configured(config.model).dtype == jnp.bfloat16
    assert models.configured(resumed.typed(config.model, {}, "cpu")).dtype == jnp.float32


def test_a_slow_type_is_told():
  assert "slower than float32" in messages.slow_type("bfloat16", "cpu")
  assert not messages.slow_type("float32", "cpu") + messages.slow_type("bfloat16", "tpu")
