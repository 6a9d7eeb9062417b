"""What a run that resumes, or that is scored, takes from its checkpoint."""

import json
import os
import pathlib

import jax.numpy as jnp
import pytest

from vit_jax import config as c
from vit_jax import models, recipes, weights
from vit_jax.evaluation.opening import open_alone
from vit_jax.storage import checkpoint
from vit_jax.training import messages, resumed


def saved(workdir, step, settings):
  """The parts of a checkpoint that these functions read."""
  meta = workdir / "checkpoints" / str(step) / "meta" / "metadata"
  meta.parent.mkdir(parents=True)
  meta.write_text(settings if isinstance(settings, str) else json.dumps({"config": settings}))
  return workdir


@pytest.mark.parametrize(
  "damage", ["", "{", "[]", "{}", "[" * 100_000, '{"config": 3}', '{"config": {"data": 3}}']
)
def test_the_newest_checkpoint_that_can_be_read_counts(tmp_path, damage):
  workdir = saved(tmp_path, 9, {"data": {"image_size": 8}})
  saved(workdir, 10, damage)
  assert resumed.group_of("data", workdir) == {"image_size": 8}
  saved(workdir, 11, {"data": {"image_size": 16}})
  assert resumed.group_of("data", workdir) == {"image_size": 16}
  assert resumed.group_of("data", workdir / "checkpoints" / "9") == {"image_size": 8}


def test_a_checkpoint_of_a_stranger_is_read_without_waiting(tmp_path):
  meta = tmp_path / "checkpoints/9/meta/metadata"
  meta.parent.mkdir(parents=True)
  os.mkfifo(meta)
  assert resumed.group_of("data", tmp_path) == {}


@pytest.mark.parametrize("train", [3, "x", ["x"], {"source": 3}])
def test_training_data_of_a_stranger_is_not_trusted(tmp_path, train):
  workdir = saved(tmp_path, 9, {"data": {"train": train}})
  assert resumed.trained_on(c.Data(), 5, workdir) == ()


def test_one_checkpoint_tells_of_its_run_as_the_workdir_does(tiny_run, tmp_path, monkeypatch):
  for place in (tiny_run, tiny_run / "checkpoints" / "5"):
    monkeypatch.chdir(place)
    for given in (place, str(place), "."):
      assert weights.read(pathlib.Path(given)).settings["data"]["train"]["source"] == "digits"
      (use,) = resumed.trained_on(c.Data(), 10, tmp_path, given)
      assert use.dataset.source == "digits"


def test_only_the_name_of_a_checkpoint_leads_to_it(tmp_path):
  saved(tmp_path, 9, {"data": {}})
  for other in ("checkpoints/09", "checkpoints-damaged/9", "checkpoints"):
    (tmp_path / other).mkdir(parents=True, exist_ok=True)
    assert checkpoint.named_by(tmp_path / other) == (tmp_path / other, [])


# --- the type of activations ---


def compute_type(platform, *workdirs, asked="auto"):
  return resumed.typed(c.Model(compute_dtype=asked), platform, *workdirs).compute_dtype


def test_a_new_run_takes_the_type_that_is_quick_on_its_devices(tmp_path):
  kinds = {platform: compute_type(platform, tmp_path) for platform in ("cpu", "gpu", "tpu")}
  assert kinds == {"cpu": "float32", "gpu": "bfloat16", "tpu": "bfloat16"}


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_a_run_goes_on_in_its_type_on_any_device(tmp_path, kind, platform):
  workdir = saved(tmp_path, 9, {"model": {"compute_dtype": kind}})
  assert compute_type(platform, workdir) == kind
  for asked in ("float32", "bfloat16"):  # a type that is named is used
    assert compute_type(platform, workdir, asked=asked) == asked


def test_recipes_for_fine_tuning_leave_the_type_to_the_devices():
  """Activations are in bfloat16 in a program that is compiled for a pod, without a run."""
  for recipe in ("finetune.py:ViT-Ti/16,cifar10", "vtab.py:ViT-Ti/16,cifar-100"):
    config = recipes.load(f"configs/{recipe}")
    assert config.model.compute_dtype == "auto"
    assert models.configured(config.model).dtype == jnp.bfloat16
    assert models.configured(resumed.typed(config.model, "cpu")).dtype == jnp.float32


def test_a_slow_type_is_told():
  assert "slower than float32" in messages.slow_type("bfloat16", "cpu")
  assert not messages.slow_type("float32", "cpu") + messages.slow_type("bfloat16", "tpu")


# --- the training data of a run that is scored ---


def scored_by(tmp_path, train, test, **more):
  """The data of an evaluation on `test` of a run that was trained on `train`."""
  settings = {"data": {"image_size": 8, "train": train, **more}}
  workdir = saved(tmp_path / "run", 9, settings)
  config = c.Config(data=c.Data(evaluate={"test": test}))
  return open_alone(config, resumed.trained_on(config.data, 1000, tmp_path / "none", workdir))


def test_what_a_run_was_trained_on_is_not_scored(tmp_path):
  train = {"source": "digits", "split": "train"}
  assert scored_by(tmp_path, train, c.EvaluationSet("digits", "test"))
  with pytest.raises(c.ConfigError, match=r"^The run's config\.data\.train \(digits train\) and "):
    scored_by(tmp_path / "again", train, c.EvaluationSet("digits", "train"))


@pytest.mark.parametrize(
  "train", [{"source": "folder:/nowhere"}, {"source": 3}, {"colour": 1}, {}, {"split": "x"}]
)
def test_training_data_that_is_not_here_is_told(tmp_path, caplog, train):
  assert scored_by(tmp_path, train, c.EvaluationSet("digits", "test"))
  (said,) = caplog.messages
  assert "Cannot check whether training images are scored: " in said
  assert resumed.trained_on(c.Data(), 1000, tmp_path / "none") == ()
