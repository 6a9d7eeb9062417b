"""A run that resumes draws examples as it began, without a setting on its command line."""

import json
import os
import pathlib

import jax.numpy as jnp
import pytest

from vit_jax import config as c
from vit_jax import models, recipes, weights
from vit_jax.config.changes import changes as settings_changes
from vit_jax.evaluation.opening import open_alone
from vit_jax.storage import checkpoint
from vit_jax.training import messages, resumed

EARLIER = {"data": {"image_size": 8}}


def drawn(sampling):
  return {"data": {"image_size": 8, "sampling": sampling}}


def saved(workdir, step, settings):
  """The parts of a checkpoint that these functions read."""
  meta = workdir / "checkpoints" / str(step) / "meta" / "metadata"
  meta.parent.mkdir(parents=True)
  meta.write_text(settings if isinstance(settings, str) else json.dumps({"config": settings}))
  return workdir


def sampling(*workdirs, asked=""):
  return resumed.completed(c.Data(sampling=asked), *workdirs).sampling


@pytest.mark.parametrize(
  ("settings", "expected"),
  [(EARLIER, "grain"), (drawn("grain"), "grain"), (drawn("uniform"), "uniform")],
)
def test_a_run_goes_on_as_it_began_unless_it_is_told_otherwise(tmp_path, settings, expected):
  workdir = saved(tmp_path, 9, settings)
  assert sampling(workdir) == sampling(str(workdir)) == expected
  for asked in ("uniform", "grain"):
    assert sampling(workdir, asked=asked) == asked


def test_a_new_run_is_uniform(tmp_path):
  assert sampling() == sampling(tmp_path) == sampling(tmp_path / "none") == "uniform"
  (tmp_path / "config.json").write_text(json.dumps(EARLIER))  # stopped before its first save
  assert sampling(tmp_path) == "uniform"


@pytest.mark.parametrize(
  "damage", ["", "{", "[]", "{}", "[" * 100_000, '{"config": 3}', '{"config": {"data": 3}}']
)
def test_the_newest_checkpoint_that_can_be_read_counts(tmp_path, damage):
  workdir = saved(tmp_path, 9, EARLIER)
  saved(workdir, 10, damage)
  assert sampling(workdir) == "grain"
  saved(workdir, 11, drawn("uniform"))
  assert sampling(workdir) == "uniform"


def test_a_checkpoint_of_a_stranger_is_read_without_waiting(tmp_path):
  meta = tmp_path / "checkpoints/9/meta/metadata"
  meta.parent.mkdir(parents=True)
  os.mkfifo(meta)
  assert resumed.group_of("data", tmp_path) == {}


@pytest.mark.parametrize("train", [3, "x", ["x"], {"source": 3}])
def test_training_data_of_a_stranger_is_not_trusted(tmp_path, train):
  workdir = saved(tmp_path, 9, {"data": {"train": train}})
  assert resumed.trained_on(c.Data(), 5, workdir) == ()


def test_an_evaluation_draws_as_the_run_that_it_scores(tmp_path):
  scored, weights = tmp_path / "new", saved(tmp_path / "old", 9, EARLIER)
  assert sampling(scored, weights) == "grain"
  saved(scored, 1, drawn("uniform"))
  assert sampling(scored, weights) == "uniform"


FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "release_0_1_0"


@pytest.mark.parametrize("place", [FIXTURE, FIXTURE / "checkpoints" / "5"])
def test_one_checkpoint_tells_of_its_run_as_the_workdir_does(tmp_path, monkeypatch, place):
  monkeypatch.chdir(place)
  for given in (place, str(place), "."):
    assert weights.read(pathlib.Path(given)).settings["data"]["train"]["source"] == "digits"
    assert sampling(tmp_path, given) == "grain"
    (use,) = resumed.trained_on(c.Data(), 10, tmp_path, given)
    assert use.dataset.source == "digits"


def test_of_several_checkpoints_the_named_one_counts(tmp_path):
  saved(saved(tmp_path, 9, drawn("grain")), 10, drawn("uniform"))
  assert sampling(tmp_path / "checkpoints" / "9") == "grain"
  assert sampling(tmp_path) == sampling(tmp_path / "checkpoints" / "10") == "uniform"
  for other in ("checkpoints/09", "checkpoints-damaged/9", "checkpoints"):
    (tmp_path / other).mkdir(parents=True, exist_ok=True)
    assert checkpoint.named_by(tmp_path / other) == (tmp_path / other, [])


def test_it_is_told_and_a_change_is_named():
  assert "as before release 0.2.0" in messages.earlier_sampling("grain")
  assert not messages.earlier_sampling("uniform")
  old = c.to_dict(c.Config())
  del old["data"]["sampling"]
  changes = lambda now: settings_changes(old, c.to_dict(c.Config(data=c.Data(sampling=now))))
  assert not changes("grain")
  assert changes("uniform") == ["config.data.sampling: 'grain' -> 'uniform'"]


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
  config = c.Config(data=c.Data(evaluate={"test": test}, sampling="uniform"))
  return open_alone(config, resumed.trained_on(config.data, 1000, tmp_path / "none", workdir))


def test_what_a_run_was_trained_on_is_not_scored(tmp_path):
  train = {"source": "digits", "split": "train"}
  assert scored_by(tmp_path, train, c.Dataset("digits", "test"))
  with pytest.raises(c.ConfigError, match=r"^The run's config\.data\.train \(digits train\) and "):
    scored_by(tmp_path / "again", train, c.Dataset("digits", "train"))


def test_parts_of_a_run_are_drawn_as_they_were(tmp_path):
  (tmp_path / "images" / "a").mkdir(parents=True)
  for index in range(20):
    (tmp_path / "images" / "a" / f"{index:02}.png").touch()
  folder = f"folder:{tmp_path / 'images'}"
  test, train = c.Dataset(folder, "[50%:]"), {"source": folder, "split": "[:50%]"}
  assert scored_by(tmp_path / "new", train, test, sampling="uniform")
  with pytest.raises(c.ConfigError, match=r"images .* in common"):  # by name, and not by name
    scored_by(tmp_path / "old", train, test)


@pytest.mark.parametrize(
  "train", [{"source": "folder:/nowhere"}, {"source": 3}, {"colour": 1}, {}, {"split": "x"}]
)
def test_training_data_that_is_not_here_is_told(tmp_path, caplog, train):
  assert scored_by(tmp_path, train, c.Dataset("digits", "test"))
  (said,) = caplog.messages
  assert "Cannot check whether training images are scored: " in said
  assert resumed.trained_on(c.Data(), 1000, tmp_path / "none") == ()
