"""import vit_jax: train, finetune and evaluate from Python, as a user's program calls them."""

import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest
from PIL import Image

import vit_jax
from vit_jax import api
from vit_jax.config import ConfigError, to_config_dict, to_dict
from vit_jax.storage import checkpoint

TINY = {
  "batch_size": 32,
  "duration.steps": 4,
  "schedule.warmup.steps": 1,
  "model.depth": 1,
  "model.width": 8,
  "model.mlp_dim": 16,
  "model.heads": 2,
  "report": False,
}


TRAINED = {"evaluate.test.split": "train", "data.allow_overlap": True}  # images trained on


def tiny(**settings):
  return vit_jax.recipe("vit_digits", TINY | settings)


def test_a_recipe_is_an_object_with_the_given_settings():
  config = tiny(**{"data.crop_area": (0.3, 1.0), "optimizer.ema": 0.5})
  assert config.model.depth == 1
  assert config.report is False
  assert config.data.crop_area == (0.3, 1.0)
  assert config.optimizer.ema == 0.5
  assert config.duration.steps == 4
  assert config.duration.epochs == 0
  of_numpy = tiny(**{"data.crop_area": (np.float64(0.3), 1), "optimizer.ema": np.float32(0.5)})
  assert of_numpy == tiny(**{"data.crop_area": [0.3, 1], "optimizer.ema": 0.5})
  with pytest.raises(ConfigError, match=r"config\.model\.dept is not a setting"):
    tiny(**{"model.dept": 1})


def test_none_is_no_value():
  with pytest.raises(ConfigError, match=r'config\.wandb=None is no value; leave the .* "" or 0\.$'):
    tiny(wandb=None)


def with_value(config, key, value):
  """The settings with a value that nothing has checked."""
  group, _, name = key.rpartition(".")
  if not group:
    return dataclasses.replace(config, **{name: value})
  return with_value(config, group, with_value(getattr(config, group), name, value))


@pytest.mark.parametrize(
  ("key", "value", "message"),
  [
    ("duration.epochs", 7.0, "duration is given twice, as {'steps': 4, 'epochs': 7.0}; keep one"),
    ("duration", 4, "duration=4 is one value; it must be a group of settings"),
    ("report", 0, "report=0 is int; it must be bool"),
    ("loss.label_smoothing", 10.0, "label_smoothing=10.0 is too large"),
  ],
)
def test_settings_made_by_hand_are_checked(key, value, message, tmp_path):
  with pytest.raises(ConfigError, match=re.escape(message)):
    vit_jax.train(with_value(tiny(), key, value), tmp_path / "run")
  assert not (tmp_path / "run").exists()


def test_settings_of_a_get_config_and_numbers_of_numpy_can_be_recorded(tmp_path, monkeypatch):
  seen = []
  monkeypatch.setattr(api.launch, "launch", lambda config, *_, **__: seen.append(config))
  config = tiny(**{"objective.class_weights": (0.5,) * 10})
  for same in (
    to_config_dict(config),
    with_value(config, "seed", np.int64(0)),
    with_value(config, "objective.class_weights", np.full(10, 0.5)),
  ):
    vit_jax.train(same, tmp_path / "run")
  assert seen == [config] * 3
  assert json.dumps([to_dict(each) for each in seen])


def test_a_recipe_is_what_the_command_trains(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for index in range(20):
    path = tmp_path / "photos" / "ab"[index % 2] / f"{index}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), (index, 0, 0)).save(path)
  (tmp_path / "train").mkdir()  # a folder of the same name as the recipe
  for name in ("photos", pathlib.Path("photos")):
    assert vit_jax.recipe(name).data.train.source == "folder:photos"
  assert vit_jax.recipe("digits").data.train.source == "digits"
  with pytest.raises(ConfigError, match=r"no recipe nope\.py"):
    vit_jax.recipe("nope.py")
  with pytest.raises(ConfigError, match=r"There is no recipe vit_digts; nearest: vit_digits"):
    vit_jax.recipe("vit_digts")


def test_metrics_that_are_not_finite_are_numbers(tmp_path):
  lines = '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": "nan"}\n{"step": 3, "loss": "inf"}\n'
  (tmp_path / "metrics.jsonl").write_text(lines)
  steps, losses = api.Result(tmp_path, True, {}).curve("loss")
  assert steps == [1, 2, 3]
  np.testing.assert_array_equal(losses, [0.5, np.nan, np.inf])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """The result of a run of four steps, on one device."""
  only = jax.devices()[:1]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax, "devices", lambda *_: only)
    return vit_jax.train(tiny(), tmp_path_factory.mktemp("api") / "run")


@pytest.mark.usefixtures("one_device")
def test_the_result_has_the_last_metrics(run):
  assert run.finished
  assert run.metrics["step"] == 4
  assert checkpoint.available(run.workdir) == [4]
  assert run.metrics["test/top1"] == vit_jax.evaluate(run.workdir)["test/top1"]


@pytest.mark.usefixtures("one_device")
def test_a_setting_replaces_the_recorded_one(run):
  of_training = vit_jax.evaluate(run.workdir, settings=TRAINED)
  assert of_training["test/examples"] == 1437
  with pytest.raises(ConfigError, match="give both, or neither"):
    vit_jax.evaluate(run.workdir, workdir="elsewhere")


@pytest.mark.usefixtures("one_device")
def test_finetunes_a_run_and_scores_it_on_other_data(run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  short = {"duration.steps": 2, "batch_size": 32, "report": False}
  tuned = vit_jax.finetune(run.workdir, "digits", "tuned", short)
  assert tuned.metrics["step"] == 2
  scores = vit_jax.evaluate("tuned", "digits", workdir="scores")
  assert (tmp_path / "scores" / "evaluation.json").exists()
  assert scores["own/examples"] == 360
  with pytest.raises(ConfigError, match=r"would be scored and not config\.init_from=.*/run; give"):
    vit_jax.evaluate(run.workdir, "digits", workdir="tuned")


@pytest.mark.usefixtures("one_device")
def test_works_in_a_thread(run):
  results = []
  thread = threading.Thread(target=lambda: results.append(vit_jax.train(tiny(), run.workdir)))
  thread.start()
  thread.join()
  assert results == [run]


def test_ctrl_c_stops_after_a_step_and_the_program_goes_on():
  stop = api.Interrupts()
  before = signal.getsignal(signal.SIGINT)
  with stop.listening():
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
    stop.hold()
    os.kill(os.getpid(), signal.SIGINT)
    assert stop.agreed()
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is before


def test_import_alone_is_fast():
  code = "import sys, vit_jax; print('jax' in sys.modules, vit_jax.__all__)"
  result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert result.stdout.startswith("False ['Result', ")
