"""A kind of evaluation is one file and one line: this file, and the line in `toy`."""

import dataclasses
import json
from typing import ClassVar

import numpy as np
import pytest

from tests import programs, resolved
from vit_jax import registry
from vit_jax.config import ConfigError, Dataset, recipe_file
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation import features
from vit_jax.evaluation.spec import EvaluationSpec, Evaluator, Metric, Result
from vit_jax.extras.experiments import holdout
from vit_jax.extras.report import report
from vit_jax.extras.settings_page import page
from vit_jax.launch import launch
from vit_jax.process.console import StopRequest
from vit_jax.storage import checkpoint, metrics_log

pytestmark = pytest.mark.usefixtures("one_device")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread(Dataset, EvaluationSpec):
  """The distance of features from their mean."""

  metrics: ClassVar = (
    Metric("spread", curve="loss", smaller_is_better=True, headline=True),
    Metric("widest", curve=""),
  )

  kind: str = name_of_kind("spread", "how far features are from their mean")
  power: float = setting(2.0, "of the distance", low=1.0, high=4.0)

  def datasets(self):
    return {"": self}

  def names(self, config):
    return ("spread", "widest")

  def check(self, key, config):
    if config.data.flip and self.power == 3:
      raise ConfigError(f"{key}.power=3 cannot be taken of flipped images; take 2.")

  def open(self, key, data):
    images = data.opener.open(key, self)
    data.check_apart(images)
    return SpreadOfImages(self, images.source)

  @staticmethod
  def in_words(metric, metrics):
    return f"spread {metrics[metric]:.4f}, at most {metrics['widest']:.4f}"


@dataclasses.dataclass(frozen=True)
class SpreadOfImages(Evaluator):
  """The images."""

  settings: Spread
  source: object

  def score(self, context, params):
    seen, _ = features.of_source(context, params, self.source, "pre_logits")
    context.raise_if_stopped()
    distance = np.abs(seen - seen.mean(axis=0)) ** self.settings.power
    write = lambda folder: (folder / "spread.txt").write_text("apart")
    return Result({"spread": float(distance.mean()), "widest": float(distance.max())}, write)


RECIPE = str(programs.ROOT / "configs/vit_digits.py")
SETTINGS = {
  "duration.steps": "3",
  "evaluate_every.steps": "1",
  "schedule.warmup.steps": "1",
  "model.depth": "1",
  "model.width": "16",
  "model.mlp_dim": "16",
  "data.image_size": "8",
  "early_stopping.metric": "mine/spread",
  "evaluate.mine.kind": "spread",
  "evaluate.mine.source": "digits",
  "evaluate.mine.split": "test",
}


@pytest.fixture
def toy(monkeypatch):
  """The line in the registry."""
  monkeypatch.setitem(registry.EVALUATIONS, "spread", "tests.seams.test_evaluation:Spread")


def configured(**changes):
  return recipe_file.replaced(recipe_file.load(RECIPE), SETTINGS | changes)


def run(config, folder, mode):
  assert launch(config, folder, StopRequest(), mode=mode, hosts=Hosts())


def test_a_toy_is_trained_with_scored_and_reported(toy, tmp_path, capsys):
  config = configured()
  run(config, tmp_path, "train")
  lines = [line for line in metrics_log.read_lines(tmp_path) if "mine/spread" in line]
  values = {line["step"]: line["mine/spread"] for line in lines}
  assert len(values) == 3
  assert all("test/top1" in line for line in lines)
  best = min(values, key=values.get)  # smaller is better
  said = capsys.readouterr().out
  assert f"Best:       mine/spread {values[best]:.4f} after step {best}" in said
  assert f"mine: spread {values[3]:.4f}, at most " in said
  assert best in checkpoint.available(tmp_path)
  run(config, tmp_path, "evaluate")
  scored = json.loads((tmp_path / "evaluation.json").read_text())
  assert scored["mine/spread"] == pytest.approx(values[3], rel=1e-5)
  assert (tmp_path / "evaluation/2/mine/spread.txt").read_text() == "apart"
  text = report.html([tmp_path], inside=False)
  assert "mine/spread" in text
  assert f"spread {values[3]:.4f}, at most" in text


def test_all_else_asks_it(toy):
  """Checks of settings, early stopping, data that is kept apart, and the page of settings."""
  config = configured()
  with pytest.raises(ConfigError, match=r"evaluate\.mine\.power=3 cannot be taken of flipped"):
    resolved.checked(configured(**{"evaluate.mine.power": "3", "data.flip": "true"}))
  with pytest.raises(ConfigError, match=r"sets give; they give .*, mine/spread, mine/widest\."):
    resolved.checked(configured(**{"early_stopping.metric": "mine/narrow"}))
  judged = lambda metric: holdout.ScoredRun("it", config, metric).scores()
  assert [role.dataset.split for role in judged("mine/spread")] == ["test", "test"]
  assert len(judged("test/top1")) == 1
  assert "| `power = 2.0` | of the distance" in page()


def test_without_its_line_nobody_knows_it():
  with pytest.raises(ConfigError, match=r"evaluate\.mine\.kind='spread' is not a choice"):
    configured()
