"""The small recipe of transfers: its halves are the paper's set-up, but for the size."""

import dataclasses
import re

from tests import programs, resolved
from tests.recipes.paper import docstring, load
from vit_jax import recipes
from vit_jax.extras.experiments.studies.loading import functions


def test_pre_training_has_the_settings_of_the_recipe_on_all_classes():
  half, whole = load("fashion_halves", "first,ViT-96/4"), load("vit_fashion", "plain")
  shape = ("name", "depth", "width", "mlp_dim", "heads")
  assert all(getattr(half.model, key) == getattr(whole.model, key) for key in shape)
  assert half.schedule.learning_rate == whole.schedule.learning_rate
  assert half.optimizer == dataclasses.replace(whole.optimizer, ema=0.0)
  assert "but no moving average" in docstring("fashion_halves")
  assert (half.batch_size, half.data.crop_area) == (whole.batch_size, whole.data.crop_area)
  assert f"{half.duration.steps} steps on 30,000 images" in docstring("fashion_halves")


def test_fine_tuning_is_that_of_table_4():
  half, whole = load("fashion_halves", "second,ViT-64/7"), load("finetune", "ViT-B/16,pets")
  half, whole = map(resolved.without_data, (half, whole))
  assert half.optimizer == whole.optimizer
  assert (half.schedule.decay, half.new_head) == (whole.schedule.decay, whole.new_head)
  assert half.schedule.learning_rate == max(recipes.TASKS["pets"].learning_rates)
  share = [one.schedule.warmup.steps / one.duration.steps for one in (half, whole)]
  assert share == [0.2, 0.2]
  assert f"{half.duration.steps} steps on 1,000 images" in docstring("fashion_halves")


def test_the_halves_have_no_images_in_common():
  first, second = (load("fashion_halves", f"{half},ResNet-2") for half in ("first", "second"))
  probe = first.evaluate["second"]
  assert {one.source for one in (first.data.train, first.evaluate["test"])} == {
    "tfds:fashion_first"
  }
  assert {probe.train.source, probe.test.source, second.data.train.source} == {
    "tfds:fashion_second"
  }


def test_the_page_of_studies_names_all_that_need_the_halves(monkeypatch):
  monkeypatch.chdir(programs.ROOT)
  found = set()
  for path in (programs.ROOT / "configs" / "studies").glob("*.py"):
    scales = functions(str(path))
    stage = scales["small"]().cells[0].stage.chain()[0] if "small" in scales else None
    flags = [f"--config.{key}={value}" for key, value in stage.settings.items()] if stage else []
    config = recipes.resolve(stage.recipe, flags) if stage else resolved.config()
    found |= {path.name} if config.data.train.source == "tfds:fashion_first" else set()
  page = (programs.ROOT / "docs" / "studies.md").read_text()
  (said,) = re.findall(r"At the small scale(.*?)use two halves", page, flags=re.DOTALL)
  assert set(re.findall(r"`(\w+\.py)`", said)) == found
