"""Recipes of fine-tuning against Tables 2 and 4 of the paper, and the BiT-HyperRule."""

import dataclasses

import pytest

from tests import resolved
from tests.recipes.paper import docstring, load, table
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.evaluation.classification import Classification

TASKS = {
  "ImageNet": ("imagenet", 1000, "validation"),
  "CIFAR-100": ("cifar100", 100, "test"),
  "CIFAR-10": ("cifar10", 10, "test"),
  "Oxford-IIIT Pets": ("pets", 37, "test"),
  "Oxford Flowers-102": ("flowers", 102, "test"),
}


SIDES = {"ViT-H/14": (518, 378), "ViT-L/16": (512, 384)}  # of ImageNet, of other tasks


@pytest.mark.parametrize("model", [*SIDES, "ViT-B/32", "R50x1+ViT-L/16", "R152x2"])
@pytest.mark.parametrize("row", table("table4_finetuning.csv")[:5], ids=lambda row: row["dataset"])
def test_fine_tuning_is_the_row_of_table_4(model, row):
  task, classes, test = TASKS[row["dataset"]]
  config = resolved.without_data(load("finetune", f"{model},{task}"))
  assert config.model.name == model
  assert config.duration == c.Duration(steps=int(row["steps"]))
  assert config.schedule.learning_rate in recipes.TASKS[task].learning_rates
  assert recipes.TASKS[task].learning_rates == tuple(map(float, row["base_lr_grid"].split()))
  assert recipes.TASKS[task].development == int(row["dev_split_percent"])
  # Section 4.1 and Appendix B.1.1, the same for all rows.
  assert (config.optimizer.kind, config.optimizer.momentum) == ("sgd", 0.9)
  assert (config.batch_size, config.optimizer.clip_norm) == (512, 1.0)
  assert (config.schedule.decay, config.schedule.end_learning_rate) == ("cosine", 0.0)
  # The paper names no warm-up; the released code has 500 steps, big_vision 100 of Pets' 500.
  assert config.schedule.warmup == c.Duration(steps=100 if config.duration.steps == 500 else 500)
  assert config.optimizer.weight_decay == config.model.dropout == 0
  assert config.new_head
  assert not config.model.representation_layer
  assert config.model.num_classes == classes
  assert config.data.train.split == "train"
  assert config.evaluate["test"].split == test
  # Table 2.
  on_imagenet, on_others = SIDES.get(model, (384, 384))
  assert config.data.image_size == (on_imagenet if task == "imagenet" else on_others)
  averaged = model in SIDES and task == "imagenet"
  assert config.optimizer.ema == (0.9999 if averaged else 0.0)
  assert f"{task} " in docstring("finetune") or f"{task}\n" in docstring("finetune")
  assert f"{config.duration.steps:,}" in docstring("finetune")


def test_a_task_alone_has_one_size_for_every_model_and_says_so():
  for task, row in recipes.TASKS.items():
    config = load("finetune", task)
    assert (config.model.name, config.model.num_classes) == (c.AUTO, row.num_classes)
    assert (config.data.image_size, config.optimizer.ema) == (384, 0.0)
    assert "only TASK" in dict(config.origins)["data.image_size"]
    assert not load("finetune", f"ViT-L/16,{task}").origins
  words = " ".join(docstring("finetune").split())
  assert "images then have 384 px, and parameters no average, whatever the model" in words


@pytest.mark.parametrize(
  ("argument", "size", "resized"),
  [
    ("ViT-B/16,pets", 384, 448),  # BiT's transfer, which Section 4.1 names
    ("ViT-H/14,pets", 378, 441),
    ("ViT-L/16,imagenet", 512, 597),
    ("R50x1,flowers,development", 384, 448),
    ("ViT-B/16,pets,inception", 384, 0),  # the released code's
    ("ViT-B/16,pets,development,inception", 384, 0),
  ],
)
def test_crops_are_the_papers_unless_the_released_codes_are_named(argument, size, resized):
  data = load("finetune", argument).data
  assert (data.image_size, data.resized_before()) == (size, resized)
  assert (data.crop_area, data.crop_aspect, data.flip) == ((0.05, 1.0), (3 / 4, 4 / 3), True)
  assert data.evaluate_resize == 0
  smaller = dataclasses.replace(data, image_size=96)
  assert smaller.resized_before() == (112 if resized else 0)


@pytest.mark.parametrize("task", recipes.TASKS)
def test_the_development_part_is_cut_from_the_training_split(task):
  """The run that chooses settings does not use the test split."""
  config = load("finetune", f"ViT-B/16,{task},development")
  cut = f"{100 - recipes.TASKS[task].development}%"
  assert config.data.train.split == f"train[:{cut}]"
  assert list(config.evaluate) == ["development"]
  assert config.evaluate["development"].split == f"train[{cut}:]"


@pytest.mark.parametrize("recipe", ["finetune", "hyperrule"])
def test_real_is_scored_beside_the_test_set(recipe):
  plain, both = load(recipe, "R50x1,imagenet"), load(recipe, "R50x1,imagenet,real")
  assert both.evaluate == plain.evaluate | {"real": recipes.SETS["real"]}
  assert dataclasses.replace(both, evaluate=plain.evaluate) == plain


@pytest.mark.parametrize("task", recipes.TASKS)
def test_the_hyperrule_can_be_scored_on_the_development_part(task):
  """The same part as the sweep's, so that the better of the two can be chosen."""
  part, whole = load("hyperrule", f"R50x1,{task},development"), load("hyperrule", f"R50x1,{task}")
  sweep = load("finetune", f"R50x1,{task},development")
  data = dataclasses.replace(whole.data, train=sweep.data.train)
  assert part == dataclasses.replace(whole, data=data, evaluate=sweep.evaluate)


@pytest.mark.parametrize(
  ("argument", "steps", "warmup", "drops", "sides", "mixup"),
  [
    ("R50x1,imagenet", 20_000, 500, (6000, 12_000, 18_000), (512, 480), 0.1),
    ("R152x2,cifar100", 10_000, 500, (3000, 6000, 9000), (160, 128), 0.1),
    ("R50x1,cifar10", 10_000, 500, (3000, 6000, 9000), (160, 128), 0.1),
    ("R50x1,pets", 500, 100, (200, 300, 400), (512, 480), 0),
    ("ViT-B/16,flowers", 500, 100, (200, 300, 400), (512, 480), 0),
    ("R50x1,19999,small", 500, 100, (200, 300, 400), (160, 128), 0),
    ("R50x1,20000,large", 10_000, 500, (3000, 6000, 9000), (512, 480), 0.1),
    ("R50x1,499999,large", 10_000, 500, (3000, 6000, 9000), (512, 480), 0.1),
    ("R50x1,500000,small", 20_000, 500, (6000, 12_000, 18_000), (160, 128), 0.1),
  ],
)
def test_hyperrule(argument, steps, warmup, drops, sides, mixup):
  config = resolved.without_data(load("hyperrule", argument))
  assert config.duration == c.Duration(steps=steps)
  assert config.schedule.warmup == c.Duration(steps=warmup)
  assert (config.schedule.decay, config.schedule.learning_rate) == ("steps", 0.003)
  assert tuple(round(share * steps) for share in config.schedule.drops) == drops
  assert (config.data.train_resize, config.data.image_size) == sides
  assert (config.objective.mixup, config.data.evaluate_resize) == (mixup, 0)
  assert (config.optimizer.kind, config.optimizer.momentum) == ("sgd", 0.9)
  assert config.optimizer.weight_decay == config.optimizer.clip_norm == config.model.dropout == 0
  assert (config.batch_size, config.new_head) == (512, True)
  model, task = argument.split(",")[:2]
  assert config.model.name == model
  if task in recipes.TASKS:
    row = recipes.TASKS[task]
    assert config.model.num_classes == row.num_classes
    assert config.data.train == c.Dataset(row.source, "train")
    assert config.evaluate == {"test": Classification(row.source, row.test, resize=0.0)}
    assert f"{steps:,} steps, {sides[1]} px" in " ".join(docstring("hyperrule").split())
  else:
    assert config.data.train == c.Dataset()
    assert config.evaluate["test"] == Classification(resize=0.0)
