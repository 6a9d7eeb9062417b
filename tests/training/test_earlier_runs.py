"""Runs and weights of the version that derived settings otherwise: they go on, and mean the same.

That version recorded 0 and "" for what it derived when it needed it. tests/fixtures/runs has a run
of 40 steps, the losses of its next 20 steps, its export to Transformers, and the settings of a run
on a user's own images.
"""

import json
import pathlib
import tarfile

import jax
import numpy as np
import pytest

import vit_jax
from tests import programs, resolved
from vit_jax import config as c
from vit_jax.config import recorded
from vit_jax.config.model import ARCHITECTURE, USUAL
from vit_jax.data import images as images_of
from vit_jax.data import sources
from vit_jax.recipes import loading
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training.facts import start_of

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures/runs"
SETTINGS = {  # starts.jsonl of the run has the command
  "optimizer.kind": "lamb",
  "optimizer.epsilon": 1e-8,  # a kind kept what the recipe's kind had by default
  "model.head_std": 0.02,
  "optimizer.ema": 0.9,
  "model.depth": 2,
  "model.width": 16,
  "model.mlp_dim": 32,
  "model.heads": 2,
  "report": "false",
  "checkpoint.every.steps": 40,
  "evaluate_every.steps": 20,
  "log_every.steps": 1,
  "schedule.warmup.steps": 10,
}
COMMAND = [
  "--config=configs/vit_digits.py",
  *(f"--config.{key}={value}" for key, value in SETTINGS.items()),
]
# What 0 and "" stood for in both runs; their values now.
STOOD_FOR = {
  "position_resizing": "bilinear_aligned",
  "data.resampling": "bilinear",
  "mesh.data": 1,
  "model.patch": 4,
  "model.pool": "class_token",
}
# What it did not have.
LATER = {"mesh.model": 1, "plugins": "", "wandb": "", "mlflow": "", "trackio": ""}
LATER |= {"data.class_balanced": False, "objective.class_weights": []}
LATER |= {"optimizer.end_weight_decay": 0.0, "optimizer.end_ema": 0.0}
LATER |= {"lora.rank": 0, "lora.alpha": 16.0}
LATER |= {"lora.kernels": r".*/(query|key|value|out|Dense_\d)/kernel"}
# What only the name said.
NAMED = {"model.family": "vit", "model.axial": False, "model.stem_width": 0}
# Parts of later models, which the model has not.
PARTS = ("norm", "norm_place", "first_norm", "final_norm", "mlp", "mlp_norm", "attention_norm")
PARTS += ("qkv_bias", "dense_bias", "patch_bias", "kv_heads", "kv_heads_from", "differential")
PARTS += ("layout", "parallel_branches", "rotary", "rotary_side", "relative_dim", "pool_heads")
PARTS += ("pool_mlp_dim", "layer_scale_place", "window", "global_blocks", "relative_axes")
PARTS += ("neck", "neck_dim", "unit_kind", "channels")
NAMED |= json.loads(json.dumps({f"model.{key}": USUAL[key] for key in PARTS}))


def unpacked(name, folder):
  with tarfile.open(FIXTURES / f"{name}.tar.gz") as packed:
    packed.extractall(folder, filter="data")


@pytest.fixture
def earlier(tmp_path):
  """The run as that version left it."""
  unpacked("digits_lamb", tmp_path)
  return tmp_path / "run"


@pytest.fixture(scope="module")
def gone_on(tmp_path_factory):
  """The run after 20 steps more, by the same command with a longer duration; and its output."""
  folder = tmp_path_factory.mktemp("gone_on")
  unpacked("digits_lamb", folder)
  return folder / "run", train(folder / "run", 60)


def train(workdir, steps):
  words = [*COMMAND, f"--workdir={workdir}", f"--config.duration.steps={steps}"]
  result = programs.run([*programs.MAIN, *words])
  assert result.returncode == 0, result.stderr
  return result.stdout


def settings_in(path):
  return json.loads(path.read_text())


def by_key(settings, path=""):
  """{"model.depth": 2, ...} of nested settings, without where they come from."""
  flat = {}
  for key, value in settings.items():
    if isinstance(value, dict) and value:
      flat |= by_key(value, f"{path}{key}.")
    elif key not in ("origins", "derived"):
      flat[f"{path}{key}"] = value
  return flat


def in_json(config):
  return by_key(json.loads(json.dumps(c.to_dict(config))))


def expected(settings, attention="heads_first", **changes):
  """The recorded values; what was derived, and the name, is all that may be otherwise."""
  values = by_key(settings)
  assert all(not values[key] for key in STOOD_FOR)
  as_all = {key: 0.0 for key, value in values.items() if key.endswith(".resize") and value == -1}
  assert as_all
  assert (values["data.evaluate_resize"], values["model.attention"]) == (0, c.AUTO)
  return values | STOOD_FOR | LATER | NAMED | as_all | {"model.attention": attention} | changes


# --- a run ---


def test_it_goes_on_with_the_losses_that_it_had(gone_on):
  workdir, output = gone_on
  assert "resuming after step 40" in output
  losses = json.loads((FIXTURES / "digits_lamb_losses.json").read_text())
  lines = [line for line in metrics_log.read_lines(workdir) if "batch/loss" in line]
  found = {str(line["step"]): line["batch/loss"] for line in lines if line["step"] > 40}
  assert [*found] == [*losses] == [str(step) for step in range(41, 61)]
  np.testing.assert_allclose([*found.values()], [*losses.values()], rtol=1e-5)


def test_only_the_duration_is_told_as_changed(gone_on):
  workdir, output = gone_on
  *_, last = (workdir / "starts.jsonl").read_text().splitlines()
  changed = json.loads(last)["changed"]  # also the code, and perhaps versions of packages
  settings = [line for line in changed if line.startswith("config.")]
  assert settings == ["config.duration.steps: 40 -> 60"]
  assert "Other settings than up to step 40: config.duration.steps: 40 -> 60; " in output


def test_its_settings_are_those_that_it_recorded(gone_on, earlier):
  workdir, _ = gone_on
  before = settings_in(earlier / "config.json")
  after = expected(before, **{"duration.steps": 60})
  assert by_key(settings_in(workdir / "config.json")) == after
  _, meta = checkpoint.described(workdir)
  assert by_key(meta["config"]) == after
  model = start_of(str(earlier)).card.model  # of a run that starts from it
  assert (model.family, model.depth, model.width, model.stem_width) == ("vit", 2, 16, 0)
  assert c.AUTO not in [getattr(model, key) for key in ("name", *ARCHITECTURE)]


def test_its_end_stays_its_end_and_a_setting_that_was_derived_cannot_be_changed(earlier):
  """Nothing is left to do, and nothing that is derived otherwise looks like a change."""
  assert "config." not in train(earlier, 40)
  assert checkpoint.available(earlier) == [40]
  words = [*COMMAND, f"--workdir={earlier}", "--config.duration.steps=60"]
  for change in ("patch=2", "pool=gap"):
    result = programs.run([*programs.MAIN, *words, f"--config.model.{change}"])
    assert result.returncode == 2
    assert "checkpoints/40 does not fit the" in programs.message(result)


def test_it_is_scored_with_its_own_settings(earlier):
  *_, last = [line for line in metrics_log.read_lines(earlier) if "test/top1" in line]
  result = programs.run([*programs.MAIN, "--mode=evaluate", f"--workdir={earlier}"])
  assert result.returncode == 0, result.stderr
  found = json.loads((earlier / "evaluation.json").read_text())
  assert (found["step"], found["average"]) == (40, True)
  metrics = [key for key in last if key.startswith("test/")]
  assert "test/loss" in metrics
  np.testing.assert_allclose([found[key] for key in metrics], [last[key] for key in metrics], 1e-5)


# --- its export ---


def test_its_export_is_the_same_model(earlier, tmp_path):
  unpacked("digits_huggingface", tmp_path)
  run, export = vit_jax.load(earlier), vit_jax.load(tmp_path / "hf")
  assert export.module == run.module
  source = sources.open_source("digits", split="test")
  assert export.class_names == run.class_names == tuple(source.class_names)
  assert export.card == run.card
  images = [images_of.as_rgb(source[index].image, max_pixels=64) for index in range(8)]
  for of_run, of_export in zip(
    *(model.predict(images, top=10) for model in (run, export)), strict=True
  ):
    names, probabilities = zip(*of_run.classes, strict=True)
    again, others = zip(*of_export.classes, strict=True)
    assert again == names
    np.testing.assert_allclose(others, probabilities, rtol=1e-6)


# --- settings of a run on own images ---


def test_settings_of_own_images_are_read_as_they_were_and_still_resolved(tmp_path):
  """Also what follows from the shorter duration, and from the images."""
  before = settings_in(FIXTURES / "own_images_config.json")
  (tmp_path / "config.json").write_text(json.dumps(before))
  config = resolved.without_data(recorded.read_config(tmp_path), devices=1)
  assert in_json(config) == expected(before, attention=c.AUTO)
  words = ["--config.duration.steps=8", "--config.report=false"]
  config = resolved.with_data(loading.resolve("configs/train.py:digits", words), jax.devices()[:1])
  assert in_json(config) == expected(before)
