"""What the runs of a study leave to rules is decided as in the same runs alone."""

import pytest

from tests import resolved
from tests.weights import families
from vit_jax import recipes, weights
from vit_jax.config.duration import is_auto
from vit_jax.config.resolve import rules_of, value_of
from vit_jax.experiments.runs import Run
from vit_jax.experiments.studies import checks
from vit_jax.training.facts import LATER
from vit_jax.weights.card import Card

REPLACED = (
  "seed=1",  # nothing that rules read
  "duration.steps=400",
  "batch_size=48",
  "data.train.subset=200",
  "data.image_size=20",
  "data.evaluate_resize=40",
  "optimizer.kind=sgd",
)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory):
  path = tmp_path_factory.mktemp("weights") / "w.npz"
  card = Card(image_size=16, resize=20, squeeze=True, resampling="pillow_bicubic")
  weights.write(path, weights.Weights(families.params("vit"), card))
  return f"configs/finetune.py:{path},digits"


@pytest.mark.parametrize("word", REPLACED)
@pytest.mark.parametrize("recipe", ["configs/train.py:digits", "configs/vit_digits.py", "tuning"])
def test_what_follows_from_a_setting_of_a_stage_follows(recipe, word, tuning, tmp_path):
  recipe, words = tuning if recipe == "tuning" else recipe, (f"--config.{word}",)
  in_study = checks.accepted(Run("a", recipe, tmp_path / "a", words))
  alone = resolved.with_data(recipes.resolve(recipe, words))
  for key in rules_of(alone).keys() - LATER:
    assert not is_auto(value_of(in_study, key)), key
    assert value_of(in_study, key) == value_of(alone, key), key
