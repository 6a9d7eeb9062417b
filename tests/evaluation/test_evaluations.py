"""Opening of evaluations: chosen images, classes that agree, and clear refusals."""

import dataclasses

import numpy as np
import pytest

from tests import resolved
from tests.data import tfds_fixture
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.data import sources
from vit_jax.data.datasets import opener_of
from vit_jax.evaluation import evaluations
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest

TRAIN, TEST = c.Dataset("digits", "train"), c.Dataset("digits", "test")
PROBE = FewShot(TRAIN, TEST, shots=(1, 25), seeds=2)
NEAREST = Nearest(TRAIN, TEST)
OTHER = c.Dataset("synthetic:7")


def config(**groups):
  return resolved.config(model=c.Model(num_classes=7), **groups)


def opened_of(settings):
  return evaluations.open_all(settings, opener_of(settings.data), ())


def few_shot(**changes):
  return config(evaluate={"probe": dataclasses.replace(PROBE, **changes)})


def test_every_drawn_image_is_held_once_and_found():
  opened = dict(opened_of(few_shot()).evaluators)["probe"]
  assert opened.draws.shape == (2, 10, 25)
  held = [opened.train.name(i) for i in range(len(opened.train))]
  assert len(held) == len({*held}) < 500
  assert {*opened.draws.ravel().tolist()} == {*range(len(held))}
  order = np.random.default_rng(1).permutation(1437)  # of seed 1
  train = sources.open_source("digits", split="train")
  for label in range(10):
    first = [row for row in order if train.labels(row) == (label,)][:25]
    assert [held[place] for place in opened.draws[1, label]] == [train.name(row) for row in first]
  assert opened.train[3].labels == opened.train.labels(3)
  assert opened.train[3].name == held[3]


def test_what_has_no_source_is_left_out():
  empty = config(evaluate={"a": FewShot(train=TRAIN), "b": Nearest(test=TEST)})
  assert not opened_of(empty)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    (
      few_shot(shots=(5, 200)),
      r"evaluate\.probe\.train \(digits\): Class '8' has 139 images, but 200 images",
    ),
    (few_shot(shots=()), r"evaluate\.probe\.shots=\(\) must be"),
    (few_shot(shots=(5, 5)), r"shots=\(5, 5\) must be different"),
    (few_shot(shots=(0, 5)), r"shots=\(0, 5\) must be"),
    (few_shot(shots=(5, "a")), r"shots=\(5, 'a'\) must be"),
    (
      few_shot(train=OTHER, shots=(1,)),
      r"probe\.test \(digits test\) has other classes: .*train has no class '7', '8', '9'\.",
    ),
    (
      config(evaluate={"knn": dataclasses.replace(NEAREST, neighbours=2000)}),
      r"evaluate\.knn\.neighbours=2000 is more than the 1437",
    ),
    (
      config(evaluate={"knn": dataclasses.replace(NEAREST, test=c.Dataset("digit"))}),
      r"^config\.evaluate\.knn\.test: .digit. does not name a data source",
    ),
    (
      config(evaluate={"knn": dataclasses.replace(NEAREST, train=OTHER)}),
      r"evaluate\.knn\.test \(digits test\) has other classes",
    ),
  ],
)
def test_refusals(settings, message):
  with pytest.raises(c.ConfigError, match=message):
    opened_of(settings)


def test_several_labels_and_classes_that_occur(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  name = tfds_fixture.write_multilabel_tfds(tmp_path, num_examples=8, num_classes=30, seed=0)
  several = Classification(f"tfds:{name}", "train")
  with pytest.raises(c.ConfigError, match=r"evaluate\.knn\.train has images with any number"):
    opened_of(config(evaluate={"knn": Nearest(several, several)}))

  def opened(classes):
    dataset = dataclasses.replace(several, classes=classes)
    given = config(data=c.Data(), evaluate={"set": dataset, "all": several})
    return {name: one.classes for name, one in opened_of(given).evaluators}

  source = opener_of(c.Data()).source(several)
  occurring = sorted({label for i in range(len(source)) for label in source[i].labels})
  assert all(source.labels(i) == source[i].labels for i in range(len(source)))
  assert opened(len(occurring)) == {"set": tuple(occurring), "all": None}
  with pytest.raises(
    c.ConfigError, match=rf"evaluate\.set\.classes=200, but {len(occurring)} classes occur"
  ):
    opened(200)


@pytest.mark.parametrize(
  ("config", "message"),
  [
    (recipes.evaluation("own", "ViT-B/16"), r"nothing to evaluate on.*evaluate\.own\.source"),
    (
      recipes.evaluation("real", "ViT-B/16"),
      r"vit-jax prepare build imagenet2012_real`",
    ),
    (
      recipes.evaluation("v2", "ViT-B/16"),
      r"evaluate\.v2: .*vit-jax prepare build imagenet_v2/matched-frequency`",
    ),
  ],
)
def test_what_is_not_there(config, message, tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  with pytest.raises(c.ConfigError, match=message):
    evaluations.open_alone(config, ())
