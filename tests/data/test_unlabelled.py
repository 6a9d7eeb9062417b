"""Images without labels: from every kind of source, into batches that hold none."""

import dataclasses

import numpy as np
import pytest

from tests import resolved
from tests.data import tfds_fixture
from tests.learning.hidden_channel import Hidden
from vit_jax import config as c
from vit_jax.data import leakage, sources
from vit_jax.evaluation import evaluations as evaluation
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.evaluation.nearest_neighbours import Nearest
from vit_jax.training import run as runs

NAMES = ["1.png", "b/2.jpg", "b/inner/deep/3.png", "c/4.webp"]


@pytest.fixture
def folder(tmp_path):
  """Images at several depths, and what is none."""
  for name in [*NAMES, "b/notes.txt", ".hidden/5.png"]:
    (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
    (tmp_path / name).write_bytes(name.encode())
  return tmp_path


def open_source(spec, split="", label_key=""):
  return sources.open_source(spec, split=split, label_key=label_key)


def test_a_folder_gives_all_images_at_any_depth_without_labels(folder):
  source = open_source(f"folder:{folder}")
  assert (source.class_names, source.multi_label) == ((), False)
  found = [source[i] for i in range(len(source))]
  assert [one.image.decode() for one in found] == NAMES
  assert [one.name for one in found] == [str(folder / name) for name in NAMES]
  assert {one.labels for one in found} == {source.labels(0)} == {()}


def test_a_folder_without_labels_is_split_and_compared_as_any_other(folder):
  for number in range(20):
    (folder / f"more{number}.png").write_bytes(b"")
  parts = [open_source(f"folder:{folder}", cut) for cut in ("[:75%]", "[75%:]")]
  whole = open_source(f"folder:{folder}")
  names = [{part.name(i) for i in range(len(part))} for part in (*parts, whole)]
  assert (len(parts[0]), len(parts[1])) == (18, 6)
  assert names[0] | names[1] == names[2]
  assert not leakage.shared(*parts)
  assert leakage.shared(parts[0], whole)
  labelled = open_source(f"folder:{folder}", label_key="label")  # b and c alone
  assert len({whole.identity, labelled.identity, *(part.identity for part in parts)}) == 4
  assert leakage.shared(whole, labelled)


def test_a_folder_without_images_is_named(tmp_path):
  with pytest.raises(sources.SourceError, match=r'^There is no folder ".*/no"; .* holds images\.$'):
    open_source(f"folder:{tmp_path}/no")
  (tmp_path / "text.txt").touch()
  with pytest.raises(sources.SourceError, match=r'^Folder ".*" has no \.jpg.* Left out: 1 with'):
    open_source(f"folder:{tmp_path}")


@pytest.mark.parametrize(
  ("spec", "split"), [("tfds:tiny_single_label", "train"), ("digits", "train"), ("synthetic:3", "")]
)
def test_other_sources_drop_their_labels(tmp_path, monkeypatch, spec, split):
  if spec.startswith("tfds"):
    tfds_fixture.write_single_label_tfds(tmp_path, num_examples=10, num_classes=5, seed=0)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  plain, labelled = (open_source(spec, split, key) for key in ("", "label"))
  assert (plain.class_names, plain.multi_label, len(plain)) == ((), False, len(labelled))
  assert (plain[3].labels, plain.labels(3), plain[3].name) == ((), (), labelled.name(3))
  np.testing.assert_array_equal(plain[3].image, labelled[3].image)
  assert plain.identity != labelled.identity
  assert bool(leakage.shared(plain, labelled)) == (spec != "synthetic:3")


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
  changes = {
    "test": {"test": bare},
    "probe.train": {"probe": FewShot(bare, test)},
    "near.test": {"near": Nearest(test, bare)},
  }
  with pytest.raises(c.ConfigError, match=rf"^config\.evaluate\.{key}\.label_key is empty"):
    evaluation.open_alone(dataclasses.replace(CONFIG, evaluate=changes[key]), ())


def test_an_objective_without_labels_takes_them_with_any_number_of_classes():
  for train in (UNLABELLED, c.Dataset("digits", "train")):
    changes = dict(model=c.Model(name="ViT-Ti/4"), objective=Hidden())
    config = dataclasses.replace(with_data(train=train), **changes)
    opened = runs.open_data(config).train
    assert (len(opened), opened.class_names) == (1437, ())
