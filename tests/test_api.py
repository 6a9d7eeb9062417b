"""import vit_jax: train, finetune and evaluate from Python, as a user's program calls them."""

import os
import signal
import subprocess
import sys
import threading

import pytest

import vit_jax
from vit_jax import api
from vit_jax.config import ConfigError
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
  with pytest.raises(ConfigError, match=r"config\.model\.dept is not a setting"):
    tiny(**{"model.dept": 1})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """The result of a run of four steps."""
  return vit_jax.train(tiny(), tmp_path_factory.mktemp("api") / "run")


def test_the_result_has_the_last_metrics(run):
  assert run.finished
  assert run.metrics["step"] == 4
  assert checkpoint.available(run.workdir) == [4]
  assert run.metrics["test/top1"] == vit_jax.evaluate(run.workdir)["test/top1"]


def test_a_setting_replaces_the_recorded_one(run):
  of_training = vit_jax.evaluate(run.workdir, settings=TRAINED)
  assert of_training["test/examples"] == 1437
  with pytest.raises(ConfigError, match="give both, or neither"):
    vit_jax.evaluate(run.workdir, workdir="elsewhere")


def test_finetunes_a_run_and_scores_it_on_other_data(run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  short = {"duration.steps": 2, "batch_size": 32, "report": False}
  tuned = vit_jax.finetune(run.workdir, "digits", "tuned", short)
  assert tuned.metrics["step"] == 2
  scores = vit_jax.evaluate("tuned", "digits", workdir="scores")
  assert (tmp_path / "scores" / "evaluation.json").exists()
  assert scores["own/examples"] == 360


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
    assert stop.agreed(1)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
  assert signal.getsignal(signal.SIGINT) is before


def test_import_alone_is_fast():
  code = "import sys, vit_jax; print('jax' in sys.modules, vit_jax.__all__)"
  result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert result.stdout.startswith("False ['Result', ")
