"""VTAB's setting: chosen on validation images alone, then scored with several seeds."""

import dataclasses

import numpy as np
import pytest

from tests import programs
from tests.experiments.test_vtab import benchmark, done
from tools import vtab as tool
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import vtab
from vit_jax.experiments.studies import jobs
from vit_jax.experiments.studies.store import RunStore, first_option
from vit_jax.experiments.vtab import Setting

GRID = vtab.grid("0.01,0.001", "500,2500")
TASKS = ("dtd", "svhn")


def some(tmp_path, **changes):
  return benchmark(tmp_path, **(dict(tasks=TASKS, settings=GRID, seeds=3) | changes))


def test_the_grid_is_every_pair():
  assert [(one.learning_rate, one.steps) for one in GRID] == [
    (0.01, 500),
    (0.01, 2500),
    (0.001, 500),
    (0.001, 2500),
  ]
  assert vtab.grid("", "") == ()


@pytest.mark.parametrize(
  ("rates", "steps", "message"),
  [
    ("0.1", "", "--learning-rates and --steps go together"),
    ("", "500", "--learning-rates and --steps go together"),
    ("0.1", "500,5e2", "holds '5e2', no number of steps"),
    ("0.1", "0", "holds '0', no number of steps"),
    ("0.1", "500,500", "must hold each number of steps once"),
    ("0.1", ",", "must hold each number of steps once"),
    ("x", "500", "'x' is no number above 0"),
  ],
)
def test_wrong_grids(rates, steps, message):
  with pytest.raises(c.ConfigError, match=message):
    vtab.grid(rates, steps)


def test_no_run_that_chooses_reads_a_test_image(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study, store = vtab.study(some(tmp_path)), RunStore(tmp_path / "v")
  stage = study.cells[0].stage
  for setting in GRID:
    trials = jobs.trials(stage, setting.option())
    for run, task in zip(map(store.run, trials), TASKS, strict=True):
      config = recipes.resolve(run.recipe, run.overrides)
      assert config.data.train.source == f"vtab:{task}"
      assert config.data.train.split == "train800"
      assert [one.split for one in config.data.evaluate.values()] == ["val200"]
      assert config.schedule.learning_rate == setting.learning_rate
      assert config.duration == c.Duration(steps=setting.steps)
      assert config.schedule.warmup == c.Duration(steps=100 if setting.steps == 500 else 500)
  run = store.run_with(jobs.Job(stage, 0), first_option)
  config = recipes.resolve(run.recipe, run.overrides)
  assert [one.split for one in config.data.evaluate.values()] == ["test"]
  assert config.duration == c.Duration(steps=500)


def test_the_best_mean_over_the_tasks_is_chosen_then_scored_by_every_seed(tmp_path, monkeypatch):
  """A setting that is best on one task loses to one that is better on the mean."""
  of_setting = dict(zip(GRID, [(0.9, 0.1), (0.6, 0.6), (0.5, 0.5), (0.6, 0.6)], strict=True))
  of_seed = [(0.5, 0.25), (0.75, 0.5), (0.625, 0.5)]

  def score(part, index, config):
    if part != "development":
      return of_seed[config.seed][index]
    setting = Setting(config.schedule.learning_rate, config.duration.steps)
    return of_setting[setting][index]

  everything = some(tmp_path)
  called, found = done(monkeypatch, everything, score)
  assert sorted(called[:8]) == ["dtd development"] * 4 + ["svhn development"] * 4
  assert sorted(called[8:]) == ["dtd"] * 3 + ["svhn"] * 3
  assert found["setting"] == dict(learning_rate=0.01, steps=2500)
  assert [row["top1"] for row in found["validation"]] == pytest.approx([50, 60, 50, 60])
  for index, row in enumerate(found["tasks"]):
    column = [100 * pair[index] for pair in of_seed]
    assert row["top1"] == pytest.approx(np.mean(column))
    assert row["std"] == pytest.approx(np.std(column, ddof=1))
  said = vtab.table(found)
  assert "Validation, learning rate 0.01, 2,500 steps: 60.0 (chosen)" in said
  assert "Validation, learning rate 0.001, 2,500 steps: 60.0\n" in said
  more = dataclasses.replace(everything, tasks=("dtd", "pets", "svhn"), settings=())
  called, _ = done(monkeypatch, more, lambda part, index, config: 0.5)
  assert called == ["pets"] * 3  # what was chosen is the recipe's setting, and done


def test_a_score_has_the_deviation_of_the_seeds_scores(tmp_path, monkeypatch):
  """Table 2: not the mean of the tasks' deviations."""
  everything = benchmark(tmp_path, seeds=2)
  _, found = done(
    monkeypatch, everything, lambda part, index, one: 0.5 + 0.25 * ((index + one.seed) % 2)
  )
  of_seeds = [100 * (0.5 + 0.25 * 9 / 19), 100 * (0.5 + 0.25 * 10 / 19)]
  assert found["score"]["top1"] == pytest.approx(np.mean(of_seeds))
  assert found["score"]["std"] == pytest.approx(np.std(of_seeds, ddof=1))


@pytest.mark.parametrize(
  ("changes", "key"),
  [
    (dict(overrides=("--config.seed=1",)), "seed"),
    (dict(overrides=("--config.duration.steps=9",)), "duration.steps"),
    (dict(overrides=("--config.seed=1",), settings=()), "seed"),
  ],
)
def test_what_the_benchmark_sets_itself_is_not_overridden(tmp_path, changes, key):
  with pytest.raises(c.ConfigError, match=f"--config.{key} is what the benchmark sets itself"):
    vtab.study(some(tmp_path, **changes))


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(["--source=B.npz", *arguments]))


def test_flags_of_the_tool():
  assert (asked().seeds, asked().settings) == (3, ())
  assert asked("--fast").seeds == 1
  found = asked("--learning-rates=0.1", "--steps=500", "--seeds=2")
  assert (found.settings, found.seeds) == ((Setting(0.1, 500),), 2)
  with pytest.raises(c.ConfigError, match="--fast has its own few steps"):
    asked("--fast", "--learning-rates=0.1", "--steps=500")


def test_a_single_setting_needs_no_choice(tmp_path, monkeypatch):
  one = some(tmp_path, settings=GRID[:1], seeds=1)
  called, found = done(monkeypatch, one, lambda part, index, config: config.duration.steps / 1000)
  assert called == ["dtd", "svhn"]
  assert (found["setting"], found["validation"]) == (dict(learning_rate=0.01, steps=500), [])
  assert found["tasks"][0]["top1"] == 50
