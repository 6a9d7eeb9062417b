"""The study of VTAB-1k: all tasks in their groups, each beside its figure of Table 9."""

import statistics

import pytest

from tests import programs
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.experiments.studies import results
from vit_jax.experiments.studies.loading import load
from vit_jax.experiments.vtab import TABLE_9

FILE = str(programs.ROOT / "configs" / "studies" / "vtab.py")


def test_every_task_is_beside_its_figure_of_table_9(monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  study = load(FILE, "paper")
  published, means = results.in_paper(study), {}
  for cell in study.cells:
    means.setdefault(cell.factors["weights"], []).append(published[cell.label])
    assert cell.stage.recipe.rpartition(",")[2] in TASKS
  # The mean of all tasks, by Table 2, to the rounding of Table 9.
  expected = {"ViT-H/14 JFT-300M": 0.7763, "ViT-L/16 JFT-300M": 0.7628}
  expected["ViT-L/16 ImageNet-21k"] = 0.7272
  assert {key: statistics.fmean(some) for key, some in means.items()} == pytest.approx(
    expected, abs=5e-4
  )


def test_tasks_are_in_the_groups_of_the_benchmark():
  study = load(FILE, "paper")
  found = {(cell.factors["group"], cell.factors["task"]) for cell in study.cells}
  rows = results.read(programs.ROOT / TABLE_9)
  assert found == {(row["group"], row["task"]) for row in rows}
  assert len(study.cells) == 3 * len(TASKS)


def test_small_tasks_differ_in_their_data_alone(monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  by_model = {}
  for cell in load(FILE, "small").cells:
    flags = [f"--config.{key}={value}" for key, value in cell.stage.settings.items()]
    config = c.to_dict(recipes.resolve(cell.stage.recipe, flags))
    assert config["data"]["train"]["subset"] == 1000
    assert not config["data"]["flip"]  # a digit would become another
    del config["data"], config["evaluate"], config["model"]["num_classes"]
    by_model.setdefault(cell.factors["model"], []).append(config)
  assert len(by_model) == 3
  for fashion, digits in by_model.values():
    assert fashion == digits
