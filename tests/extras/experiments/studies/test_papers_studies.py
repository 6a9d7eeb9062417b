"""configs/studies: rows of the paper's tables, what varies, what is chosen and where."""

import dataclasses
import fractions
import math
import statistics

import pytest

from tests import programs, resolved
from tests.extras.experiments.studies import stub
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.extras.experiments.studies import jobs, results, transfer
from vit_jax.extras.experiments.studies.loading import load

STUDIES = programs.ROOT / "configs" / "studies"


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
    # Four starts, and thirteen trainings; the probes are evaluations of the starts.
    ("without_labels", "small", 4 * 3 * 3 + 1, (4 + 13) * 3),
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
  rows = results.read_rows(STUDIES / "paper" / f"table{table}.csv")
  found = results.in_paper(of(name))
  assert sorted(found.values()) == sorted(
    float(row["accuracy"]) for row in rows if row["task"] != "Average"
  )


@pytest.mark.parametrize("task", recipes.TASKS)
def test_the_hyperrule_as_a_candidate_is_its_recipe(task):
  stage = transfer.fine_tuning("R50x1", task, stub.PRETRAINING)
  *rates, rule = stage.choice.options
  grid = [rate["schedule.learning_rate"] for rate in rates]
  assert grid == list(recipes.TASKS[task].learning_rates)
  once = dict(evaluate_every=c.Duration())
  whole = dataclasses.replace(recipes.load(f"configs/hyperrule.py:R50x1,{task}"), **once)
  found, expected = (
    dataclasses.replace(resolved.without_data(config, images=1000), origins=(), derived=())
    for config in (config_of(stage, rule), whole)
  )
  assert found == expected


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
  rows = results.read_rows(STUDIES / "paper" / "table6.csv")
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


def test_every_start_without_labels_sees_as_many_images_and_no_test_image():
  cells = [cell for cell in of("without_labels", "small").cells if "train" in cell.label]
  passes = set()
  for cell in cells:
    configs = [config_of(stage) for stage in cell.stage.chain()]
    passes.add(sum(one.duration.steps * one.batch_size for one in configs))
    assert {one.data.train.split for one in configs} == {"train"}
    assert configs[-1].data.train.subset in (0, cell.factors["labels"])
  assert len(cells) == 13
  assert passes == {2500 * 64}


@pytest.mark.parametrize(("scale", "sides"), [("small", (16, 24, 32)), ("paper", (224, 336, 448))])
def test_positions_are_interpolated_or_new_and_nothing_else(scale, sides):
  study = of("resolution", scale)
  kept, new = (
    [cell.stage for cell in study.cells if cell.factors["positions"] == kind]
    for kind in ("interpolated", "new")
  )
  for one, other in zip(kept, new, strict=True):
    assert one.after == other.after
    assert one.choice == other.choice
    assert one.settings | {"new_positions": True} == other.settings
    assert not one.settings["new_positions"]
  assert tuple(stage.settings["data.image_size"] for stage in kept) == sides
  assert [side / sides[0] for side in sides] == [1, 1.5, 2]


BEFORE, SCORED_BEFORE = {"data.train.split": "train[:99%]"}, {"evaluate.val.split": "train[99%:]"}


@pytest.mark.parametrize(
  ("name", "factors", "before"),
  [
    ("data_size", {"pretraining": "ImageNet", "task": "ImageNet"}, BEFORE | SCORED_BEFORE),
    ("resolution", {}, BEFORE),
  ],
)
def test_trials_score_images_that_no_run_before_them_has_seen(name, factors, before):
  """Where both runs are on ImageNet."""
  some = [cell.stage for cell in of(name).cells if factors.items() <= cell.factors.items()]
  assert some
  for stage in some:
    assert before.items() <= stage.after.settings.items()
    held_out = BEFORE | {"evaluate.test.split": "train[99%:]"}
    assert held_out.items() <= stage.choice.held_out.items()


SCALES = {"small": ((4, 64, 128, 7), 28, 16), "paper": ((8, 1024, 2048, 32), 224, 64)}
DIMENSIONS = ("depth", "width", "mlp_dim", "patch")


def curve(study, scaled):
  """The shapes of a curve, by the labels of its cells."""
  some = [cell for cell in study.cells if cell.factors["scaled"] == scaled]
  return {cell.label: tuple(cell.factors[key] for key in DIMENSIONS) for cell in some}


@pytest.mark.parametrize("scale", SCALES)
def test_a_curve_varies_its_dimension_both_ways(scale):
  study, (base, _, head) = of("shape", scale), SCALES[scale]
  for place, dimension in enumerate(DIMENSIONS):
    shapes = curve(study, dimension).values()
    for shape in shapes:
      assert shape[:place] + shape[place + 1 :] == base[:place] + base[place + 1 :]
    values = [shape[place] for shape in shapes]
    assert len(set(values)) == len(values)
    assert sum(value < base[place] for value in values) >= 2 <= sum(v > base[place] for v in values)
  for cell in study.cells:
    settings = cell.stage.settings
    assert settings["model.width"] == head * settings["model.heads"]
    assert {key: settings[f"model.{key}"] for key in DIMENSIONS}.items() <= cell.factors.items()
  if scale == "paper":
    assert max(shape[0] for shape in curve(study, "depth").values()) == 64


@pytest.mark.parametrize("scale", SCALES)
def test_all_dimensions_are_scaled_by_one_factor(scale):
  study, (base, side, _) = of("shape", scale), SCALES[scale]
  shapes = curve(study, "all")
  assert len(shapes) == 5
  tiling = [patch for patch in range(1, side + 1) if side % patch == 0]
  for label, shape in shapes.items():
    factor = fractions.Fraction(label.removeprefix("all x "))
    assert shape[:3] == tuple(size * factor for size in base[:3])
    assert shape[3] == min(tiling, key=lambda p, f=factor: abs(math.log(p * f / base[3])))


def test_every_task_is_beside_its_figure_of_table_9():
  study = of("vtab")
  published, means = results.in_paper(study), {}
  for cell in study.cells:
    means.setdefault(cell.factors["weights"], []).append(published[cell.label])
  # The mean of all tasks, by Table 2, to the rounding of Table 9.
  expected = {"ViT-H/14 JFT-300M": 0.7763, "ViT-L/16 JFT-300M": 0.7628}
  expected["ViT-L/16 ImageNet-21k"] = 0.7272
  assert {key: statistics.fmean(some) for key, some in means.items()} == pytest.approx(
    expected, abs=5e-4
  )


def test_small_tasks_differ_in_their_data_alone():
  by_model = {}
  for cell in of("vtab", "small").cells:
    config = c.to_dict(config_of(cell.stage))
    assert config["data"]["train"]["subset"] == 1000
    assert not config["data"]["flip"]  # a digit would become another
    del config["data"], config["evaluate"], config["model"]["num_classes"]
    by_model.setdefault(cell.factors["model"], []).append(config)
  assert len(by_model) == 3
  for fashion, digits in by_model.values():
    assert fashion == digits


PIECES = {
  "with sine-cosine positions": ["model.positions"],
  "with mean pooling": ["model.pool"],
  "with RandAugment": ["data.augment"],
  "with MixUp": ["objective.mixup"],
  "with CutMix": ["objective.cutmix"],
  "with stochastic depth": ["model.stochastic_depth"],
}


def test_each_cell_of_augmentation_has_one_piece_more_than_the_plain_one():
  study, configs = of("augmentation", "small"), {}
  assert len(jobs.of_study(study)) == 3 * 8 * 3
  for cell in study.cells:
    configs[cell.factors["images"], cell.factors["recipe"]] = c.to_dict(config_of(cell.stage))
  every = sorted(key for keys in PIECES.values() for key in keys)
  for images in (1000, 10_000):
    plain = configs[images, "plain"]
    assert plain["data"]["train"]["subset"] == images
    for name, keys in {**PIECES, "all": every}.items():
      lines = c.recorded.differences(plain, configs[images, name])
      assert sorted(line.partition(":")[0].removeprefix("config.") for line in lines) == keys
