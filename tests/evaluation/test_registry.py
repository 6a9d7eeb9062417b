"""A fourth kind of evaluation needs one file and one line: all other code asks the registry."""

import dataclasses
import json
from collections.abc import Mapping

import jax
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax.evaluation import features, registry
from vit_jax.evaluation.spec import EvaluationSpec, Evaluator, Metric, Result
from vit_jax.learning.masked_patches import Masked
from vit_jax.plots import curves
from vit_jax.process.signals import StopRequest
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import checks, train
from vit_jax.training import run as runs

# --- the file of a fourth kind of evaluation: the distance between features ---


@dataclasses.dataclass(frozen=True)
class Spread:
  """Its settings."""

  images: c.Dataset
  power: float


@dataclasses.dataclass(frozen=True)
class EvaluateSpread(Evaluator):
  """Its data."""

  settings: Spread
  source: object

  def score(self, context, params):
    seen, _ = features.of_source(context, params, self.source)
    context.raise_if_stopped()
    apart = np.abs(seen - seen.mean(axis=0)) ** self.settings.power
    write = lambda folder, _: (folder / "spread.txt").write_text("apart")
    return Result({"spread": float(apart.mean()), "widest": float(apart.max())}, write)


FOURTH = EvaluationSpec(
  group="config.spread",
  settings=lambda config: getattr(config, "spread", {}),
  open=lambda settings, opener, trained, classes: {
    name: EvaluateSpread(one, opener.source(one.images)) for name, one in settings.items()
  },
  metrics=(
    Metric("spread", curve="loss", smaller_is_better=True, headline=True),
    Metric("widest", curve=""),
  ),
  names=lambda settings, _: ("spread", "widest"),
  in_words=lambda metric, metrics: f"spread {metrics[metric]:.4f}, at most {metrics['widest']:.4f}",
)

# --- end of that file ---


@dataclasses.dataclass(frozen=True)
class WithSpread(c.Config):
  """A config with its settings."""

  spread: Mapping[str, Spread] = dataclasses.field(default_factory=dict)


CONFIG = WithSpread(
  batch_size=32,
  duration=c.Duration(steps=3),
  evaluate_every=c.Duration(steps=1),
  model=c.Model(
    name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10, compute_dtype="float32"
  ),
  data=c.Data(
    train=c.Dataset("digits", "train"),
    evaluate={"test": c.EvaluationSet("digits", "test")},
    image_size=8,
  ),
  spread={"digits": Spread(c.Dataset("digits", "test"), 2.0)},
)


@pytest.fixture
def fourth(monkeypatch):
  """The line in the registry."""
  monkeypatch.setattr(registry, "SPECS", (*registry.SPECS, FOURTH))


def test_a_run_with_a_fourth_evaluation(fourth, tmp_path, capsys, monkeypatch):
  stopping = c.EarlyStopping(metric="digits/spread", patience=9)
  config = dataclasses.replace(CONFIG, early_stopping=stopping)
  checks.check(config)
  made = runs.make(config, runs.open_data(config), jax.devices()[:1])
  plots = {}
  keep = lambda folder, plot_of: plots.update({key: plot_of(key) for key in lines_of(tmp_path)[-1]})
  monkeypatch.setattr(curves, "curves", keep)
  assert train.train(made, tmp_path, StopRequest())
  found = {line["step"]: line["digits/spread"] for line in lines_of(tmp_path, "digits/spread")}
  assert len(found) == 3
  assert all("test/top1" in line for line in lines_of(tmp_path, "digits/spread"))
  best = min(found, key=found.get)  # smaller is better
  said = capsys.readouterr().out
  assert f"Best:       digits/spread {found[best]:.4f} after step {best}" in said
  assert f"digits: spread {found[3]:.4f}, at most " in said
  assert best in checkpoint.available(tmp_path)
  assert (plots["digits/spread"], plots["digits/widest"]) == ("loss", "")


def lines_of(folder, key="step"):
  return [line for line in metrics_log.read(folder) if key in line]


def test_what_is_known_of_its_figures(fourth):
  of_test, own = ["test/loss", "test/top1"], ["digits/spread", "digits/widest"]
  assert registry.names(CONFIG) == [*of_test, "test/top5", *own]
  five = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, num_classes=5))
  assert registry.names(five) == [*of_test, *own]  # top-5 of five classes says nothing
  unknown = dataclasses.replace(CONFIG, model=dataclasses.replace(CONFIG.model, num_classes=0))
  assert registry.names(unknown) == registry.names(CONFIG)  # the data may have more than five
  masked = dataclasses.replace(five, objective=Masked(), reconstruct=five.data.evaluate)
  assert registry.names(masked)[2:5] == [
    f"test/patch_{name}" for name in ("loss", "constant_loss", "accuracy")
  ]
  assert registry.headlines(["digits/spread", "digits/widest"]) == ["digits/spread"]
  with pytest.raises(
    c.ConfigError, match=r"they give test/loss, .*, digits/spread, digits/widest\."
  ):
    checks.check(
      dataclasses.replace(CONFIG, early_stopping=c.EarlyStopping(metric="digits/narrow"))
    )


def test_without_its_line_nothing_knows_it():
  assert not registry.headlines(["digits/spread"])
  assert [name for name, _ in runs.open_data(CONFIG).evaluations.opened] == ["test"]


def test_which_figures_are_better_when_they_are_smaller():
  smaller = lambda key: registry.metric(key).smaller_is_better
  assert smaller("a/b/loss")
  assert not smaller("val/top1")
  assert not smaller("val/5shot")
  assert not smaller("val/20nn")
  assert registry.metric("loss") is None
  assert registry.metric("val/5shot_std") is None


def test_figures_that_are_drawn():
  found = {key: registry.curve(f"val/{key}") for key in ("loss", "top5", "5shot", "20nn", "ece")}
  assert found == dict.fromkeys(("top5", "5shot", "20nn"), "accuracy") | {"loss": "loss", "ece": ""}
  assert registry.curve("loss") == registry.curve("time/idle") == ""


def test_figures_of_one_name_are_told_by_the_evaluation_that_they_belong_to():
  metrics = {"a/top1": 0.5, "a/top5": 0.75, "a/loss": 1.0, "a/examples": 1000}
  metrics |= {"a/b/20nn": 0.25, "a/5shot": 0.5, "a/5shot_std": 0.125}
  assert registry.in_words(json.loads(json.dumps(metrics | {"step": 7}))) == (
    "a: top-1 50.00%, top-5 75.00%, loss 1.0000 on 1,000 images; a/b: 20 nearest 25.00%; "
    "a: 5-shot 50.00% +- 12.50%"
  )


def test_lines_of_metrics_that_are_evaluations():
  for key in ("test/top1", "imagenet/5shot", "a/b/20nn"):
    assert registry.headlines(["step", key]) == [key]
  for key in ("loss", "test/loss", "imagenet/5shot_std", "top1"):
    assert not registry.headlines(["step", key])
