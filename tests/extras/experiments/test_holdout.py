"""Which pairs of recipes have a valid development split."""

import dataclasses

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data.datasets import Opener
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.extras.experiments import holdout

RECIPE = """
from vit_jax.config import Config, Data, Dataset, Duration, to_config_dict
from vit_jax.evaluation.classification import Classification

def get_config(parts):
  train, *scored = parts.split("|")
  sets = {{f"set{{i}}": Classification("folder:{folder}", part) for i, part in enumerate(scored)}}
  return to_config_dict(Config(
    duration=Duration(steps=1), data=Data(train=Dataset("folder:{folder}", train)), evaluate=sets))
"""


@pytest.fixture
def recipe(tmp_path):
  """Of parts as TRAIN|SCORED|SCORED, of a folder with ten images of each class."""
  for name in ("a", "b"):
    (tmp_path / "images" / name).mkdir(parents=True)
    for index in range(10):
      (tmp_path / "images" / name / f"{index}.png").touch()
  (tmp_path / "parts.py").write_text(RECIPE.format(folder=tmp_path / "images"))
  return f"{tmp_path / 'parts.py'}:{{}}".format


def check(development, final, overrides):
  """Checks a pair of recipes as a study checks a trial and the run that it chooses for."""
  part, whole = (recipes.resolve(name, overrides) for name in (development, final))
  judged = (holdout.ScoredRun(*one, "set0/top1") for one in ((development, part), (final, whole)))
  holdout.check(*judged)


@pytest.mark.parametrize(
  ("development", "final"),
  [
    ("[:70%]|[70%:80%]", "[:80%]|[80%:]"),
    ("[:60%]|[60%:80%]", "[:80%]|[90%:]|[80%:90%]"),
  ],
)
def test_a_part_held_back_is_good(recipe, development, final):
  check(recipe(development), recipe(final), ("--config.seed=1",))


@pytest.mark.parametrize(
  ("development", "final", "uses"),
  [
    ("[:70%]|[80%:]", "[:80%]|[80%:]", ("development scores [80%:]", "final scores [80%:]")),
    ("[:70%]|[70%:]", "[:80%]|[80%:]", ("development scores [70%:]", "final scores [80%:]")),
    ("[:90%]|[70%:80%]", "[:80%]|[80%:]", ("trains on [:90%]", "development scores [70%:80%]")),
    ("[:100%]|[70%:80%]", "[:80%]|[80%:]", ("trains on [:100%]", "scores [70%:80%]")),
    ("[50%:]|[:50%]", "[:80%]|[80%:]", ("development trains on [50%:]", "final scores [80%:]")),
    ("[:70%]|[70%:80%]", "|[80%:]", ("final trains on ", "final scores [80%:]")),
    ("[:60%]|[60%:70%]", "[:80%]|[90%:]|[70%:]", ("final trains on [:80%]", "scores [70%:]")),
    ("[:60%]|[60%:90%]", "[:80%]|[90%:]|[80%:90%]", ("final scores [80%:90%]",)),
    ("[:90%]|[60%:80%]", "[:80%]|[90%:]|[80%:90%]", ("development trains on [:90%]",)),
  ],
)
def test_no_image_is_chosen_or_trained_by_that_is_scored_later(
  recipe, tmp_path, development, final, uses
):
  folder = f"folder:{tmp_path / 'images'}"
  with pytest.raises(
    c.ConfigError, match=r"but both have \d+ images? .such as .*a/\d\.png'\); give"
  ) as caught:
    check(recipe(development), recipe(final), ())
  said = str(caught.value).replace(f"{folder} ", "").replace(folder, "")
  said = said.replace(recipe(development), "development").replace(recipe(final), "final")
  assert all(use in said for use in uses)


def test_the_images_of_a_few_shot_figure_are_kept_apart(recipe):
  """Those of the probe that chooses from those of the probe that scores, and from training."""
  whole = recipes.resolve(recipe("[:80%]"), ())
  train = whole.data.train

  def probe(part):
    sets = (dataclasses.replace(train, split=split) for split in ("[:10%]", part))
    return dataclasses.replace(whole, evaluate={**whole.evaluate, "p": FewShot(*sets)})

  judged = lambda part, metric="p/5shot": holdout.ScoredRun(part, probe(part), metric)
  final = judged("[90%:]")
  part = judged("[80%:90%]")
  holdout.check(part, final)
  holdout.check(judged("[70%:]", "other/5shot"), final)  # another figure chooses
  for wrong in ("[70%:]", "[85%:]"):
    with pytest.raises(c.ConfigError, match="but both have"):
      holdout.check(judged(wrong), final)
  with pytest.raises(c.ConfigError, match=r"trains on .* scores .*but both have"):
    holdout.check(part, judged("[70%:]"))


class Labelled:
  """A source of examples with these labels; counts what is read."""

  class_names = ("cat", "dog", "eel", "fox")

  def __init__(self, labels):
    self._labels, self.read = labels, 0

  def __len__(self):
    return len(self._labels)

  def labels(self, index):
    self.read += 1
    return (self._labels[index],)


def config(split):
  return resolved.config(data=c.Data(train=c.Dataset("tfds:zoo", split)))


def checked(monkeypatch, part, whole):
  sources = {"train[:50%]": Labelled(part), "train": Labelled(whole)}
  monkeypatch.setattr(Opener, "source", lambda _, dataset: sources[dataset.split])
  holdout.check_classes(config("train[:50%]"), config("train"))
  return sources


def test_a_class_that_only_the_whole_has_is_named(monkeypatch):
  with pytest.raises(c.ConfigError) as caught:
    checked(monkeypatch, [0, 2, 0], [0, 2, 0, 1, 3])
  assert str(caught.value) == (
    "The development part leaves class 'dog' (and 1 more) without an image to train on: "
    "tfds:zoo train[:50%] has 3 images and none of this class; hold fewer images back."
  )


def test_a_class_that_the_whole_has_not_either_is_no_fault_of_the_cut(monkeypatch):
  checked(monkeypatch, [0, 1, 2], [0, 1, 2, 2])


def test_reading_ends_when_all_classes_were_met(monkeypatch):
  sources = checked(monkeypatch, [0, 1, 2, 3] * 1000, [])
  assert sources["train[:50%]"].read < 100


def test_very_large_sets_are_not_looked_through(monkeypatch):
  monkeypatch.setattr(holdout, "MAX_SEARCHED", 5)
  sources = checked(monkeypatch, [0] * 6, [0, 1, 2, 3])
  assert sources["train[:50%]"].read == 0
