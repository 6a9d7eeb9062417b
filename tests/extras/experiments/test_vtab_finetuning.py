"""The recipe of VTAB-1k's tasks: Table 4's row, parts, image sizes, crops and flips."""

import dataclasses
import re

import numpy as np
import pytest

from tests import programs, resolved
from tests.recipes.paper import docstring, load, table
from vit_jax import config as c
from vit_jax.data import images
from vit_jax.data.batches import train_transform
from vit_jax.evaluation.classification import Classification
from vit_jax.extras.experiments.vtab_finetuning import PREPARATIONS
from vit_jax.extras.sources.vtab_tasks import TASKS
from vit_jax.learning.optimizers.sgd import SGD


@pytest.mark.parametrize("task", TASKS)
def test_the_recipe_is_the_row_of_table_4(task):
  (row,) = [row for row in table("table4_finetuning.csv") if row["dataset"].startswith("VTAB")]
  config = resolved.without_data(load("vtab", f"ViT-L/16,{task}"))
  assert config.duration == c.Duration(steps=int(row["steps"]))
  assert config.schedule == c.Schedule(
    learning_rate=float(row["base_lr_grid"]), decay="cosine", warmup=c.Duration(steps=500)
  )
  assert config.optimizer == SGD(momentum=0.9, clip_norm=1.0, ema=0.0)
  assert config.batch_size == 512
  assert config.new_head
  assert config.model.num_classes == TASKS[task].num_classes
  assert config.data.train == c.Dataset(f"vtab:{task}", "train800val200")
  assert config.evaluate == {"test": Classification(f"vtab:{task}", "test", resize=0.0)}
  assert config.data.image_size == 384
  assert re.search(rf"\b{task}[, .]", docstring("vtab").replace("\n", " "))


@pytest.mark.parametrize(("part", "steps"), [("development", 2500), ("smoke", 4)])
@pytest.mark.parametrize("task", ["svhn", "snorb-azim"])
def test_other_parts_do_not_look_at_the_test_set(part, steps, task):
  config = load("vtab", f"ViT-B/16,{task},{part}")
  assert config.data.train.split == "train800"
  assert [data.split for data in config.evaluate.values()] == ["val200"]
  assert config.duration.steps == steps


@pytest.mark.parametrize(
  ("model", "side", "small"),
  [("ViT-H/14", 378, 56), ("ViT-B/32", 384, 64), ("R50x1+ViT-B/16", 384, 64), ("R50x1", 384, 64)],
)
def test_images_are_as_large_as_the_patches_allow(model, side, small):
  assert load("vtab", f"{model},dtd").data.image_size == side
  assert load("vtab", f"{model},dtd,smoke").data.image_size == small


# Without it the label could become wrong: counts and distances are lost by crops, places, numerals
# and directions by flips.
UNCROPPED = {"clevr-count", "clevr-dist", "dmlab", "dspr-loc", "dspr-ori", "kitti-dist"}
UNFLIPPED = {"svhn", "dspr-loc", "dspr-ori", "snorb-azim"}


@pytest.mark.parametrize("task", TASKS)
def test_training_images_are_cropped_and_flipped_where_the_label_survives(task):
  data = load("vtab", f"ViT-B/16,{task}").data
  assert data.resized_before() == (0 if task in UNCROPPED else 448)
  assert data.flip == (task not in UNFLIPPED)
  data = dataclasses.replace(data, image_size=24)
  prepare = train_transform(data)
  image = np.random.default_rng(0).integers(0, 256, (31, 40, 3), dtype=np.uint8)
  whole = images.evaluate_image(image, size=24, resize=0, max_pixels=10**6)
  found = [prepare(image, rng=np.random.default_rng(seed)).pixels for seed in range(8)]
  same = [np.array_equal(one, whole) for one in found]
  mirrored = [np.array_equal(one, whole[:, ::-1]) for one in found]
  if task not in UNCROPPED:
    assert not any(same + mirrored)
  else:
    assert all(a or b for a, b in zip(same, mirrored, strict=True))
    assert any(mirrored) == (task not in UNFLIPPED)


def test_the_page_lists_the_same_tasks():
  page = (programs.ROOT / "docs" / "decisions" / "vtab-images.md").read_text()
  cells = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
  listed = {
    name: (crop, flip, why)
    for row in cells[1:]
    for *names, crop, flip, why in [[*row[0].split(", "), *row[1:]]]
    for name in names
  }
  yes = {True: "yes", False: "no"}
  assert listed == {
    name: (yes[row.crop], yes[row.flip], row.why) for name, row in PREPARATIONS.items()
  }
  assert list(PREPARATIONS) == list(TASKS)
