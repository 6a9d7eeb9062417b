"""Sets that lack classes of the head are scored by name, in training and with --mode=evaluate."""

import csv
import pathlib

import numpy as np
import pytest
from PIL import Image

from tests import resolved
from tests.evaluation.miniatures import MODEL, SIDE, evaluated, parameters
from vit_jax import config as c
from vit_jax import weights
from vit_jax.data import datasets
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.evaluations import open_all, open_alone
from vit_jax.weights.card import Card

HEAD = ("bag", "coat", "hat", "shoe")


def write(root, counts):
  rng = np.random.default_rng(0)
  for name, count in counts.items():
    (root / name).mkdir(parents=True)
    for i in range(count):
      pixels = rng.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
      Image.fromarray(pixels).save(root / name / f"{i}.png")


@pytest.fixture
def config(tmp_path):
  """An evaluation of a head with four classes on images of two."""
  write(tmp_path / "test", {"shoe": 5, "coat": 3})
  card = Card(image_size=SIDE, class_names=HEAD)
  weights.write(tmp_path / "w.npz", weights.Weights(parameters(len(HEAD))[1], card))
  return resolved.evaluation(
    init_from=str(tmp_path / "w.npz"),
    batch_size=8,
    model=MODEL,
    data=c.Data(image_size=SIDE),
    evaluate={"test": Classification(f"folder:{tmp_path}/test")},
  )


def test_labels_are_those_of_the_head(config):
  in_training = open_all(config, datasets.opener_of(config.data), (), classes=HEAD)
  for opened in (in_training, open_alone(config, ()).of_head(HEAD)):
    (scored,) = opened.heads()
    labels = [HEAD[scored.source.labels(i)[0]] for i in range(len(scored.source))]
    folders = [pathlib.Path(scored.source.name(i)).parent.name for i in range(8)]
    assert labels == folders


def test_tables_are_in_the_order_of_the_head(config, tmp_path, capsys):
  metrics = evaluated(config, tmp_path / "run")
  assert "test: no image of: 'bag', 'hat'" in capsys.readouterr().out
  tables = tmp_path / "run/evaluation/1/test"
  read = lambda name: csv.reader((tables / name).read_text().splitlines())
  _, *rows = read("predictions.csv")
  assert all(f"/{label}/" in name for name, label, *_ in rows)
  right = [label for _, label, prediction, _ in rows if label == prediction]
  assert metrics["test/top1"] == len(right) / metrics["test/examples"] == len(right) / 8
  images = {"bag": "0", "coat": "3", "hat": "0", "shoe": "5"}
  _, *classes = read("classes.csv")
  assert [row[:3] for row in classes] == [[k, n, str(right.count(k))] for k, n in images.items()]
  header, *matrix = read("confusion.csv")
  assert header[1:] == [row[0] for row in matrix] == list(HEAD)
  assert [str(sum(map(int, row[1:]))) for row in matrix] == list(images.values())


def test_a_class_that_the_head_lacks_is_named(config, tmp_path):
  write(tmp_path / "test", {"shoes": 1})
  message = r"test\) has other .*{} has no class 'shoes' \(it has 'shoe'\)"
  with pytest.raises(c.ConfigError, match=message.format("the training data")):
    open_all(config, datasets.opener_of(config.data), (), classes=HEAD)
  with pytest.raises(c.ConfigError, match=message.format("the head")):
    evaluated(config, tmp_path / "run")
