"""configs/studies/augmentation.py: each cell has one piece more than the plain one."""

import pytest

from tests import programs
from vit_jax import recipes
from vit_jax.config import recorded, to_dict
from vit_jax.extras.experiments.studies import jobs
from vit_jax.extras.experiments.studies.loading import load

PIECES = {
  "with sine-cosine positions": ["model.positions"],
  "with mean pooling": ["model.pool"],
  "with RandAugment": ["data.augment"],
  "with MixUp": ["objective.mixup"],
  "with CutMix": ["objective.cutmix"],
  "with stochastic depth": ["model.stochastic_depth"],
}


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
  monkeypatch.chdir(programs.ROOT)


def test_each_cell_has_one_piece_more():
  study = load("configs/studies/augmentation.py", "small")
  assert len(jobs.of_study(study)) == 3 * 8 * 3
  configs = {}
  for cell in study.cells:
    words = [f"--config.{key}={value}" for key, value in cell.stage.settings.items()]
    config = recipes.resolve(cell.stage.recipe, words)
    configs[cell.factors["images"], cell.factors["recipe"]] = to_dict(config)
  every = sorted(key for keys in PIECES.values() for key in keys)
  for images in (1000, 10_000):
    plain = configs[images, "plain"]
    assert plain["data"]["train"]["subset"] == images
    for name, keys in {**PIECES, "all": every}.items():
      lines = recorded.differences(plain, configs[images, name])
      assert sorted(line.partition(":")[0].removeprefix("config.") for line in lines) == keys
