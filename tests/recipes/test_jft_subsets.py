"""The recipe of Figure 4: subsets of JFT-300M, with the steps and settings of the whole."""

import dataclasses

import pytest

from tests.recipes.paper import docstring, load
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.evaluation import catalogue
from vit_jax.training import steps

WHOLE = {"ViT-B/32": "vit_b32", "ViT-L/32": "vit_l32", "ViT-L/16": "vit_l16"}
WHOLE |= {"R50x1": "r50x1", "R152x2": "r152x2"}


@pytest.mark.parametrize("subset", ["9M", "30M", "90M", "all"])
@pytest.mark.parametrize("model", WHOLE)
def test_every_subset_has_the_settings_and_the_steps_of_the_whole(model, subset):
  config, whole = load("jft_subsets", f"{model},{subset}"), load(f"{WHOLE[model]}_jft", "7")
  for group in ("batch_size", "model", "loss", "optimizer", "schedule"):
    assert getattr(config, group) == getattr(whole, group)
  images = dict(zip(("9M", "30M", "90M", "all"), (9e6, 30e6, 90e6, 0), strict=True))[subset]
  assert config.data == dataclasses.replace(whole.data, train=c.Dataset(subset=int(images)))
  planned = steps.durations_in_steps(config, int(images) or 303_000_000)
  assert planned.total == steps.durations_in_steps(whole, 303_000_000).total == 517_822
  assert planned.course.warmup == 10_000
  # So dense that the best is seen: several evaluations in each epoch, or one an epoch of 9 M.
  assert planned.evaluate <= 1.2 * 9e6 / 4096
  assert f"{planned.total:,} steps" in docstring("jft_subsets")


def test_a_recipe_can_name_every_dataset():
  (field,) = (field for field in dataclasses.fields(c.Data) if field.name == "dataset")
  assert field.metadata["choices"] == ("", *recipes.DATASETS)


@pytest.mark.parametrize(
  ("dataset", "subset", "examples"),
  [
    *(("imagenet", 0, 1_281_167), ("imagenet", 500, 500), ("imagenet", 10**8, 1_281_167)),
    *(("", 500, 500), ("", 0, None), ("jft", 0, 303_000_000), ("jft", 9_000_000, 9_000_000)),
  ],
)
def test_an_epoch_is_of_the_subset_and_no_more_than_the_set(dataset, subset, examples):
  config = c.Config(data=c.Data(dataset=dataset, train=c.Dataset(subset=subset)))
  assert recipes.examples_of(config) == examples


@pytest.mark.parametrize(
  ("split", "examples"),
  [
    *(("train", 1_281_167), ("train[:99%]", 1_268_355), ("train[99%:]", 12_812)),
    *(("train[10%:30%]", 256_233), ("train[:1000]", 1000), ("train[51200:]", 1_229_967)),
    *(("train[:50%]+test", None), ("train[-500:]", None)),
  ],
)
def test_an_epoch_is_of_the_part(split, examples):
  train = c.Dataset(split=split)
  config = c.Config(data=c.Data(dataset="imagenet", train=train))
  assert recipes.examples_of(config) == examples
  train = dataclasses.replace(train, subset=500)
  config = c.Config(data=c.Data(dataset="imagenet", train=train))
  assert recipes.examples_of(config) == 500


def test_the_best_checkpoint_by_the_5_shot_figure_is_kept_and_no_run_ends_before():
  config = load("jft_subsets")
  assert config.early_stopping == c.EarlyStopping(metric="imagenet/5shot", patience=0)
  assert config.early_stopping.metric in catalogue.names(config)
  smaller = load("jft_subsets", "ViT-b/32,9M")
  assert smaller.schedule == load("vit_b32_jft").schedule
