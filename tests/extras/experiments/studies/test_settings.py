"""What the runs of a study leave to rules is decided as in the same runs alone."""

import pytest

from tests import resolved
from tests.weights import families
from vit_jax import recipes, weights
from vit_jax.config.fields import is_auto
from vit_jax.config.resolve import rules_of, value_of
from vit_jax.extras.experiments.runs import Run
from vit_jax.extras.experiments.studies import checks
from vit_jax.training.facts import LATER
from vit_jax.weights.card import Card

REPLACED = (
  "seed=1",  # nothing that rules read
  "duration.steps=400",
  "batch_size=48",
  "data.train.subset=200",
  "data.image_size=20",
  "data.evaluate_resize=40",
  "optimizer.kind=sgd schedule.learning_rate=0.01",
)


@pytest.fixture(scope="module")
def tuning(tmp_path_factory):
  path = tmp_path_factory.mktemp("weights") / "w.npz"
  card = Card(image_size=16, resize=20, squeeze=True, resampling="pillow_bicubic")
  weights.write(path, weights.Weights(families.params("vit"), card))
  return f"configs/finetune.py:{path},digits"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
  "word",
  ["data.crop_aspect=(0.5,2)", "data.crop_rule=random_resized", "data.evaluate_squeeze=true"],
)
def test_what_has_an_effect_with_weights_that_crop_is_accepted(word, there, tuning, tmp_path):
  """Also if they are not there, so that it is not known whether they crop."""
  path = tuning.partition(":")[2].partition(",")[0] if there else tmp_path / "gone.npz"
  more = ("model.name=ViT-B/4", "data.image_size=16", "new_head=true", word)
  more += (f"init_from={path}", "schedule.learning_rate=0.01")
  words = tuple(f"--config.{each}" for each in more)
  assert checks.accepted(Run("a", "configs/train.py:digits", tmp_path / "a", words))


@pytest.mark.parametrize("word", REPLACED)
@pytest.mark.parametrize("recipe", ["configs/train.py:digits", "configs/vit_digits.py", "tuning"])
def test_what_follows_from_a_setting_of_a_stage_follows(recipe, word, tuning, tmp_path):
  recipe, words = (
    tuning if recipe == "tuning" else recipe,
    tuple(f"--config.{each}" for each in word.split()),
  )
  in_study = checks.accepted(Run("a", recipe, tmp_path / "a", words))
  alone = resolved.with_data(recipes.resolve(recipe, words))
  for key in rules_of(alone).keys() - LATER:
    assert not is_auto(value_of(in_study, key)), key
    assert value_of(in_study, key) == value_of(alone, key), key
