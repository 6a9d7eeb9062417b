"""VTAB's setting: chosen on validation images alone, then scored with several seeds."""

import numpy as np
import pytest

from tests import programs
from tests.experiments.test_vtab_score import benchmark, finished
from tools import vtab as tool
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import runs, vtab_choice, vtab_score
from vit_jax.experiments.vtab_choice import Setting

GRID = vtab_choice.grid("0.01,0.001", "500,2500")
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
  assert vtab_choice.grid("", "") == ()


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
    vtab_choice.grid(rates, steps)


def test_no_run_that_chooses_reads_a_test_image(tmp_path, monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  for setting in GRID[:2]:
    for run in vtab_score.development(some(tmp_path), setting):
      config = recipes.resolve(run.recipe, run.overrides)
      assert config.data.train.split == "train800"
      assert [one.split for one in config.data.evaluate.values()] == ["val200"]
      assert config.schedule.learning_rate == setting.learning_rate
      assert config.duration == c.Duration(steps=setting.steps)
      assert config.schedule.warmup == c.Duration(steps=100 if setting.steps == 500 else 500)
  (run, _), *_ = vtab_score.finals(some(tmp_path), GRID[0])
  config = recipes.resolve(run.recipe, run.overrides)
  assert [one.split for one in config.data.evaluate.values()] == ["test"]
  assert config.duration == c.Duration(steps=500)


def test_the_best_mean_over_the_tasks_is_chosen_then_scored_by_every_seed(tmp_path):
  """A setting that is best on one task loses to one that is better on the mean."""
  of_setting = dict(zip(GRID, [(0.9, 0.1), (0.6, 0.6), (0.5, 0.5), (0.6, 0.6)], strict=True))
  of_seed, seen = [(0.5, 0.25), (0.75, 0.5), (0.625, 0.5)], []
  everything = some(tmp_path)

  def execute(parts):
    seen.append([run.recipe.rpartition(",")[2] for run in parts])
    if len(seen) == 1:
      with pytest.raises(c.ConfigError, match="is not done"):
        vtab_score.chosen(everything)
    scores = of_setting.values() if len(seen) == 1 else of_seed
    for run, score in zip(parts, [x for pair in scores for x in pair], strict=True):
      finished(run, score)

  found = vtab_score.search(everything, execute=execute)
  assert seen == [["development"] * 8, ["dtd", "svhn"] * 3]
  assert found["setting"] == dict(learning_rate=0.01, steps=2500)
  assert [row["top1"] for row in found["validation"]] == pytest.approx([50, 60, 50, 60])
  for index, row in enumerate(found["tasks"]):
    column = [100 * pair[index] for pair in of_seed]
    assert row["top1"] == pytest.approx(np.mean(column))
    assert row["std"] == pytest.approx(np.std(column, ddof=1))
  said = vtab_score.table(found)
  assert "Validation, learning rate 0.01, 2,500 steps: 60.0 (chosen)" in said
  assert "Validation, learning rate 0.001, 2,500 steps: 60.0\n" in said


def test_a_score_has_the_deviation_of_the_seeds_scores(tmp_path):
  """Table 2: not the mean of the tasks' deviations."""
  everything = benchmark(tmp_path, seeds=2)
  for seed, group in enumerate(vtab_score.finals(everything, None)):
    for index, run in enumerate(group):
      finished(run, 0.5 + 0.25 * ((index + seed) % 2))
  score = vtab_score.report(everything)["score"]
  of_seeds = [100 * (0.5 + 0.25 * 9 / 19), 100 * (0.5 + 0.25 * 10 / 19)]
  assert score["top1"] == pytest.approx(np.mean(of_seeds))
  assert score["std"] == pytest.approx(np.std(of_seeds, ddof=1))


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
    vtab_score.check(some(tmp_path, **changes))


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(["--source=B.npz", *arguments]))


def test_flags_of_the_tool():
  assert (asked().seeds, asked().settings) == (3, ())
  assert asked("--fast").seeds == 1
  found = asked("--learning-rates=0.1", "--steps=500", "--seeds=2")
  assert (found.settings, found.seeds) == ((Setting(0.1, 500),), 2)
  with pytest.raises(c.ConfigError, match="--fast has its own few steps"):
    asked("--fast", "--learning-rates=0.1", "--steps=500")


def test_a_single_setting_needs_no_choice(tmp_path):
  one, executed = some(tmp_path, settings=GRID[:1], seeds=1), []
  found = vtab_score.search(
    one, execute=lambda parts: executed.extend(finished(run, 0.5) or run.name for run in parts)
  )
  assert executed == ["final 0.01-500-seed0, task dtd", "final 0.01-500-seed0, task svhn"]
  assert found["setting"] == dict(learning_rate=0.01, steps=500)
  assert runs.top1(vtab_score.finals(one, GRID[0])[0][0]) == 0.5
