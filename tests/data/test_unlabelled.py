"""Images without labels: from every kind of source, into batches that hold none."""

import dataclasses

import numpy as np
import pytest

from tests import resolved
from tests.data.opened import every, open_source, tree
from tests.learning.hidden_channel import Hidden
from vit_jax import config as c
from vit_jax.data import datasets
from vit_jax.evaluation import evaluations as evaluation
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.training import run as runs

NAMES = ["1.png", "b/2.jpg", "b/inner/deep/3.png", "c/4.webp"]


@pytest.fixture
def folder(tmp_path):
  """Images at several depths, and what is none."""
  return tree(tmp_path, *NAMES, "b/notes.txt", ".hidden/5.png")


def test_a_folder_gives_all_images_at_any_depth_without_labels(folder):
  source = open_source(f"folder:{folder}", label_key="")
  assert (source.class_names, source.multi_label) == ((), False)
  found = every(source)
  assert [one.image.decode() for one in found] == NAMES
  assert [one.name for one in found] == [str(folder / name) for name in NAMES]
  assert {one.labels for one in found} == {source.labels(0)} == {()}


def test_a_folder_without_labels_is_split_and_compared_as_any_other(folder):
  tree(folder, *(f"more{number}.png" for number in range(20)))
  cuts = ("[:75%]", "[75%:]", "")
  *parts, whole = (open_source(f"folder:{folder}", cut, label_key="") for cut in cuts)
  names = [{part.name(i) for i in range(len(part))} for part in (*parts, whole)]
  assert (len(parts[0]), len(parts[1])) == (18, 6)
  assert names[0] | names[1] == names[2]
  assert not datasets.shared_images(*parts)
  assert datasets.shared_images(parts[0], whole)
  labelled = open_source(f"folder:{folder}")  # b and c alone
  assert len({whole.identity, labelled.identity, *(part.identity for part in parts)}) == 4
  assert datasets.shared_images(whole, labelled)


@pytest.mark.parametrize(("spec", "split"), [("digits", "train"), ("synthetic:3", "")])
def test_other_sources_drop_their_labels(spec, split):
  plain, labelled = open_source(spec, split, label_key=""), open_source(spec, split)
  assert (plain.class_names, plain.multi_label, len(plain)) == ((), False, len(labelled))
  assert (plain[3].labels, plain.labels(3), plain[3].name) == ((), (), labelled.name(3))
  np.testing.assert_array_equal(plain[3].image, labelled[3].image)
  assert plain.identity != labelled.identity
  assert bool(datasets.shared_images(plain, labelled)) == (spec != "synthetic:3")


# --- what a run says of them ---

UNLABELLED = c.Dataset("digits", "train", label_key="")
CONFIG = resolved.config(
  batch_size=16,
  duration=c.Duration(steps=2),
  model=c.Model(name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=10),
  data=c.Data(train=c.Dataset("digits", "train"), image_size=8),
)


def with_data(**changes):
  return dataclasses.replace(CONFIG, data=dataclasses.replace(CONFIG.data, **changes))


def test_classification_refuses_training_images_without_labels():
  with pytest.raises(c.ConfigError, match=r"^config\.data\.train\.label_key is empty, so these im"):
    runs.open_data(with_data(train=UNLABELLED))


@pytest.mark.parametrize("key", ["test", "probe.train", "near.test"])
def test_evaluations_refuse_images_without_labels(key):
  test = Classification("digits", "test", label_key="label")
  bare = dataclasses.replace(test, label_key="")
  name = key.partition(".")[0]
  sets = {"test": bare, "probe": FewShot(bare, test), "near": Nearest(test, bare)}
  with pytest.raises(c.ConfigError, match=rf"^config\.evaluate\.{key}\.label_key is empty"):
    evaluation.open_alone(dataclasses.replace(CONFIG, evaluate={name: sets[name]}), ())


def test_an_objective_without_labels_takes_them_with_any_number_of_classes():
  for train in (UNLABELLED, c.Dataset("digits", "train")):
    changes = dict(model=c.Model(name="ViT-Ti/4"), objective=Hidden())
    config = dataclasses.replace(with_data(train=train), **changes)
    opened = runs.open_data(config).train
    assert (len(opened), opened.class_names) == (1437, ())
