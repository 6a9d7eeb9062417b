"""Studies of pre-training and transfer: rows of the paper's tables, what is chosen and where."""

import dataclasses

import pytest

from tests import programs
from tests.experiments.studies import stub
from vit_jax import recipes
from vit_jax.config import Duration
from vit_jax.experiments.studies import Drawing, Score, jobs, results, transfer
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.loading import load

STUDIES = programs.ROOT / "configs" / "studies"
TRANSFERS = ("data_size", "compute", "optimizer")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
  monkeypatch.chdir(programs.ROOT)


def of(name, scale="paper"):
  return load(f"configs/studies/{name}.py", scale)


def config_of(stage, *more):
  """The config of a stage, with more settings."""
  settings = {key: value for one in (stage.settings, *more) for key, value in one.items()}
  return recipes.resolve(stage.recipe, [f"--config.{k}={v}" for k, v in settings.items()])


@pytest.mark.parametrize(
  ("name", "scale", "cells", "runs"),
  [
    # Six pre-trainings; each cell chooses among four rates.
    ("masked", "small", 3 * 3 + 5, 6 * 3 + 14 * (4 + 3)),
    ("subsets", "small", 4 * 4, 4 * 4 * 3),
    ("subsets", "paper", 6 * 4, 6 * 4),
    ("optimizer", "small", 4, 4 * (4 + 3 + 3)),
    ("optimizer", "paper", 2 * 2 * 5, 4 + 20 * (4 + 1 + 1)),
    ("compute", "small", 9, 9 * (3 + 3)),
    # A fine-tuning has four rates; those of the seven ResNets also try the BiT-HyperRule.
    ("compute", "paper", 18 * 6, 18 + 18 * (5 * (4 + 1) + 1) + 7 * 5),
    ("data_size", "small", 9, 6 * 4 + 3 * 3 + 9 * (3 + 3)),
    # Four candidates for regularisation, three for ResNets, none on JFT-300M.
    ("data_size", "paper", 20 * 6, 9 * 4 + 4 * 3 + 20 + 20 * (5 * (4 + 1) + 1) + 6 * 5),
  ],
)
def test_number_of_cells_and_runs(name, scale, cells, runs):
  study = of(name, scale)
  assert len(study.cells) == cells
  assert len(jobs.of_study(study)) == runs


@pytest.mark.parametrize(("name", "table"), [("data_size", 5), ("compute", 6), ("optimizer", 7)])
def test_every_figure_of_the_table_has_its_cell(name, table):
  rows = results.read(STUDIES / "paper" / f"table{table}.csv")
  found = results.in_paper(of(name))
  assert sorted(found.values()) == sorted(
    float(row["accuracy"]) for row in rows if row["task"] != "Average"
  )


def test_the_cost_of_pre_training_is_that_of_table_6(tmp_path):
  study = of("compute")
  firsts = {cell.stage.chain()[0].name: cell for cell in study.cells}
  cells = [dataclasses.replace(cell, stage=cell.stage.chain()[0]) for cell in firsts.values()]
  alone = dataclasses.replace(
    study, cells=tuple(cells), score=Score("imagenet/5shot"), drawing=Drawing("model"), paper=None
  )
  costs = stub.runner(tmp_path, alone).checked_costs()
  table = {
    (row["model"], row["epochs"]): float(row["exaflops"])
    for row in results.read(STUDIES / "paper" / "table6.csv")
  }
  assert len(cells) == len(table) == 18
  for cell in cells:
    cost, factors = costs[repr(Job(cell.stage, 0))], cell.factors
    ratio = cost.exaflops(cost.steps) / table[factors["model"], str(factors["epochs"])]
    assert ratio == pytest.approx(1, abs=0.031)  # the bounds of each row are in tools/test_cost.py


@pytest.mark.parametrize("task", recipes.TASKS)
def test_the_hyperrule_as_a_candidate_is_its_recipe(task):
  stage = transfer.fine_tuning("R50x1", task, stub.PRETRAINING)
  *rates, rule = stage.choice.options
  grid = [rate["schedule.learning_rate"] for rate in rates]
  assert grid == list(recipes.TASKS[task].learning_rates)
  once = dict(evaluate_every=Duration())
  whole = dataclasses.replace(recipes.load(f"configs/hyperrule.py:R50x1,{task}"), **once)
  assert config_of(stage, rule) == whole


@pytest.mark.parametrize("task", recipes.TASKS)
@pytest.mark.parametrize("model", ["ViT-L/16", "ViT-H/14"])
def test_a_fine_tuning_chooses_on_the_development_part_and_is_scored_once(model, task):
  stage = transfer.fine_tuning(model, task, stub.PRETRAINING)
  assert len(stage.choice.options) == 4
  final, trial = config_of(stage), config_of(stage, stage.choice.held_out)
  part = recipes.load(f"configs/finetune.py:{model},{task},development")
  assert trial.data.train == part.data.train
  assert trial.evaluate["test"] == part.evaluate["development"]
  whole = recipes.load(f"configs/finetune.py:{model},{task}")
  assert final.data.train == whole.data.train
  assert final.evaluate == whole.evaluate
  assert not final.evaluate_every.given()
  # On ImageNet Tables 5 to 7 have 384 (378) px, and no average.
  assert (final.data.image_size, final.optimizer.ema) == ({"L": 384, "H": 378}[model[4]], 0.0)


def test_pre_training_on_jft_is_as_long_as_table_5_says():
  """Its figures are those of Table 6, which has the epochs, or 0.0004 less for ViT-H/14."""
  rows = results.read(STUDIES / "paper" / "table6.csv")
  rows = [row for row in rows if row["task"] == "ImageNet"]
  study, found = of("data_size"), 0
  figures = results.in_paper(study)
  for cell in study.cells:
    model, images, task = (cell.factors[key] for key in ("model", "pretraining", "task"))
    if (images, task) == ("JFT-300M", "ImageNet") and cell.label in figures:
      found += 1
      accuracy = pytest.approx(figures[cell.label], abs=5e-4)
      (row,) = (r for r in rows if (r["model"], float(r["accuracy"])) == (model, accuracy))
      assert config_of(cell.stage.chain()[0]).duration.epochs == float(row["epochs"])
  assert found == 5


def test_fine_tuning_on_imagenet_chooses_on_images_that_pre_training_has_not_seen():
  for cell in of("data_size").cells:
    if cell.factors["pretraining"] == "ImageNet" and cell.factors["task"] == "ImageNet":
      before, held_out = cell.stage.after, cell.stage.choice.held_out
      assert before.settings["data.train.split"] == held_out["data.train.split"]
      assert before.settings["evaluate.val.split"] == held_out["evaluate.test.split"]


@pytest.mark.parametrize("name", TRANSFERS)
def test_cells_of_one_pre_training_share_it(name):
  study = of(name)
  by_factors = {}
  for cell in study.cells:
    others = {key: value for key, value in cell.factors.items() if key != "task"}
    by_factors.setdefault(repr(others), set()).add(repr(cell.stage.chain()[0]))
  assert {len(some) for some in by_factors.values()} == {1}
  assert len(set.union(*by_factors.values())) == len(by_factors)


def test_sgd_at_the_small_scale_has_the_settings_of_bit():
  bit = recipes.load("configs/resnet_sgd.py:R50x1,jft")
  stages = [cell.stage.after for cell in of("optimizer", "small").cells]
  configs = [config_of(stage) for stage in stages]
  assert [one.optimizer.kind for one in configs] == ["adam", "sgd"] * 2
  for one in configs[1::2]:
    assert one.optimizer == bit.optimizer
    assert (one.schedule.decay, one.schedule.drops) == (bit.schedule.decay, bit.schedule.drops)
  least = min(rate["schedule.learning_rate"] for rate in stages[1].choice.options)
  assert least == pytest.approx(0.03 * configs[1].batch_size / 256)


def test_runs_on_subsets_are_equally_long_and_stop_at_their_best():
  for scale, batch in (("small", 64), ("paper", 4096)):
    study = of("subsets", scale)
    configs = [config_of(cell.stage) for cell in study.cells]
    assert len({(one.duration, one.batch_size) for one in configs}) == 1
    assert {one.batch_size for one in configs} == {batch}
    assert study.score.take == "best"
    assert {one.early_stopping.metric for one in configs} == {study.score.metric}
    for cell, one in zip(study.cells, configs, strict=True):
      whole = {"small": 0, "paper": 303_000_000}[scale]
      assert (one.data.train.subset or whole) == cell.factors["images"]


def test_runs_after_masked_patches_differ_from_others_in_start_and_length_alone():
  alone = dict.fromkeys(("duration", "evaluate_every", "schedule", "checkpoint", "new_head"))
  by_labels = {}
  for cell in of("masked", "small").cells:
    configs = [config_of(stage) for stage in cell.stage.chain()]
    last, labels = configs[-1], cell.factors["labels"]
    assert last.new_head == (len(configs) == 2)
    assert {one.data.train.split for one in configs[:-1]} <= {"train"}
    assert (last.data.train.split, last.data.train.subset) == ("train[:90%]", labels)
    assert last.evaluate["test"].split == "test"
    assert cell.stage.choice.held_out["evaluate.test.split"] == "train[90%:]"
    same, steps = by_labels.setdefault(labels, ([], []))
    same.append(dataclasses.replace(last, **alone))
    steps.append(sum(one.duration.steps for one in configs))
  for same, (masked, scratch, longer, *kinds) in by_labels.values():
    assert same.count(same[0]) == len(same)
    assert {masked, longer, *kinds} == {scratch + 2000}
