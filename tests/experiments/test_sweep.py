"""The choice of a learning rate: the study of a sweep, its results, and a test set nobody saw."""

import json

import numpy as np
import pytest

from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import sweep
from vit_jax.experiments.studies import jobs
from vit_jax.experiments.studies.store import RunStore
from vit_jax.experiments.sweep import RATE, Sweep

RECIPE = """
from vit_jax.config import *
from vit_jax.evaluation.classification import Classification

def get_config(part):
  train, scored = {"all": ("train", "test"), "development": ("train[:75%]", "train[75%:]")}[part]
  source = "tfds:tiny_single_label"
  return to_config_dict(Config(
    batch_size=8,
    duration=Duration(steps=3),
    log_every=Duration(steps=1),
    evaluate_every=Duration(steps=1),
    model=Model(name="ViT-Ti/16", depth=1, width=16, mlp_dim=32, heads=2, num_classes=3),
    data=Data(
      train=Dataset(source, train), image_size=16
    ), evaluate={part: Classification(source, scored)},
  ))
"""


def small(tmp_path, **changes):
  values = dict(
    development=f"{tmp_path / 'tiny.py'}:development",
    final=f"{tmp_path / 'tiny.py'}:all",
    learning_rates=(0.3, 0.01),
    seeds=2,
    folder=tmp_path / "sweep",
  )
  return Sweep(**(values | changes))


def study_of(some):
  """(study, its one stage, store)."""
  study = sweep.study(some)
  return study, study.cells[0].stage, RunStore(some.folder)


def test_settings_of_the_runs(tmp_path):
  """Holds with any other overrides, also of the evaluation's frequency."""
  (tmp_path / "tiny.py").write_text(RECIPE)
  given = ("--config.evaluate_every.epochs=2", "--config.batch_size=4")
  _, stage, store = study_of(small(tmp_path, overrides=given))
  resolved = lambda run: recipes.resolve(run.recipe, run.overrides)
  grid = [resolved(store.run(job)) for job in jobs.trials_of_all(stage)]
  best = lambda stage: {RATE: 0.3} if stage.has_trials() else {}
  tests = [resolved(store.run_with(jobs.Job(stage, seed), best)) for seed in (0, 1)]
  assert [(x.seed, x.schedule.learning_rate) for x in grid] == [(0, 0.01), (0, 0.3)]
  assert [(x.seed, x.schedule.learning_rate) for x in tests] == [(0, 0.3), (1, 0.3)]
  assert [x.evaluate_every for x in grid] == [c.Duration(epochs=2.0)] * 2
  assert [x.evaluate_every for x in tests] == [c.Duration()] * 2
  assert {x.batch_size for x in grid + tests} == {4}


def finished(run, **top1):
  """Writes the files of a finished run, for the logic around it."""
  run.folder.mkdir(parents=True)
  config = c.to_dict(c.Config(batch_size=10, duration=c.Duration(steps=5)))
  (run.folder / "config.json").write_text(json.dumps(config))
  figures = {f"{name}/top1": value for name, value in top1.items()}
  lines = [{"step": 5, "data/epoch": 1.0}, {"step": 5} | figures]
  (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def done(some, development, **tests):
  """Finishes the trials, and then the seeds with the figures of each set; returns the report."""
  study, stage, store = study_of(some)
  for job, top1 in zip(jobs.trials_of_all(stage), development, strict=True):
    finished(store.run(job), development=top1)
  for seed in range(some.seeds):
    figures = {name: values[seed] for name, values in tests.items()}
    finished(store.run(jobs.Job(stage, seed)), **figures)
  return sweep.report(some, study)


@pytest.fixture
def tiny(tmp_path):
  """The folder of two recipes; there is no data."""
  (tmp_path / "tiny.py").write_text(RECIPE)
  return tmp_path


def test_the_best_is_chosen_and_of_equal_ones_the_smallest(tiny):
  some = small(tiny, learning_rates=(0.3, 0.03, 0.1, 0.01), seeds=1)
  assert done(some, [0.6, 0.7, 0.7, 0.7], all=[0.5])["learning_rate"] == 0.03


def test_mean_and_deviation_of_the_seeds(tiny):
  scores = [0.5, 0.53125, 0.6875]
  found = done(small(tiny, seeds=3), [0.5, 0.25], all=scores)
  assert [(row["seed"], row["top1"]) for row in found["test"]] == list(enumerate(scores))
  assert found["mean"] == pytest.approx(np.mean(scores), abs=1e-15)
  assert found["std"] == pytest.approx(np.std(scores, ddof=1), abs=1e-15)


def test_one_seed_and_one_rate(tiny):
  """No deviation, and nothing to choose."""
  one = small(tiny, seeds=1, learning_rates=(0.3,))
  found = done(one, [], all=[0.5])
  assert (found["development"], found["learning_rate"]) == ([], 0.3)
  assert (found["mean"], found["std"]) == (0.5, None)
  assert sweep.table(found).splitlines() == [
    "seed  test top-1",
    "0         50.00%",
    "mean      50.00%",
  ]
  sweep.write(one, found)
  assert (one.folder / "sweep.png").read_bytes().startswith(b"\x89PNG")


def test_further_sets_of_the_final_runs_have_their_mean_and_deviation(tiny):
  """As ReaL beside ImageNet's own labels, in whatever order they were scored."""
  (tiny / "tiny.py").write_text(
    RECIPE.replace("evaluate={part", 'evaluate={"test" if part == "all" else part')
  )
  some, real, test = small(tiny, seeds=3), (0.75, 0.875, 0.8125), (0.5, 0.53125, 0.6875)
  found = done(some, [0.5, 0.25], real=real, test=test)
  assert tuple(row["top1"] for row in found["test"]) == test
  assert found["mean"] == pytest.approx(np.mean(test))
  spread = pytest.approx(np.std(real, ddof=1))
  assert found["others"] == {"real": dict(mean=pytest.approx(np.mean(real)), std=spread)}
  assert sweep.table(found).endswith("mean, real                81.25%  ± 6.25%")
  sweep.write(some, found)
  assert "real, mean,0.01,,0.8125," in (some.folder / "sweep.csv").read_text().replace('"', "")


@pytest.mark.parametrize(("of_rule", "best"), [(0.75, "hyperrule"), (0.5, 0.01)])
def test_a_rule_is_chosen_where_it_is_better_on_the_development_part(tiny, of_rule, best):
  rule = {RATE: 0.003, "duration.steps": 9, "batch_size": 2}
  some = small(tiny, rule=rule, overrides=("--config.batch_size=4",))
  found = done(some, [0.5, 0.5, of_rule], all=[0.25, 0.25])
  assert [row["learning_rate"] for row in found["development"]] == [0.01, 0.3, "hyperrule"]
  assert found["learning_rate"] == best
  assert ("BiT-HyperRule             75.00%  chosen" in sweep.table(found)) == (of_rule == 0.75)
  sweep.write(some, found)
  assert (some.folder / "sweep.png").exists()
  _, stage, store = study_of(some)
  run = store.run(jobs.Job(stage, 1))
  config = recipes.resolve(run.recipe, run.overrides)
  assert (config.duration.steps, config.batch_size) == (9 if best == "hyperrule" else 3, 4)
  assert list(config.evaluate) == ["all"]


@pytest.mark.parametrize("key", ["seed", "schedule.learning_rate"])
def test_what_a_sweep_sets_itself_is_not_overridden(tmp_path, key):
  with pytest.raises(c.ConfigError, match=f"--config.{key} is what a sweep sets itself"):
    sweep.study(small(tmp_path, overrides=(f"--config.{key}=1",)))


def test_a_recipe_that_scores_nothing(tiny):
  some = small(tiny, overrides=("--config.evaluate.all.source=",))
  with pytest.raises(c.ConfigError, match="scores 0 sets"):
    sweep.study(some)
  (tiny / "tiny.py").write_text(
    RECIPE.replace("Classification(source, scored)", "Classification()")
  )
  with pytest.raises(c.ConfigError, match=r"tiny\.py:development scores 0 sets"):
    sweep.study(small(tiny))


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", "must hold each number once"),
    ("0.1,-0.3", "'-0.3' is no number above 0"),
    ("0.1,0.3;1", "'0.3;1' is no number"),
    ("0.1,1e-1", "must hold each number once"),
  ],
)
def test_wrong_grids(text, message):
  with pytest.raises(c.ConfigError, match=message):
    sweep.rates(text)
