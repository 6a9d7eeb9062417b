"""Sets that lack classes of the head are scored by name, in training and with --mode=evaluate."""

import contextlib
import csv
import dataclasses
import io
import json

import jax
import numpy as np
import pytest
from PIL import Image

from vit_jax import config as c
from vit_jax import launch
from vit_jax.evaluation.classification import Classification
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.training import run as runs

TRAINED = {"bag": 40, "coat": 90, "hat": 140, "shoe": 190}  # grey values
CONFIG = c.Config(
  batch_size=16,
  duration=c.Duration(steps=60),
  evaluate_every=c.Duration(steps=60),
  checkpoint=c.Checkpoint(every=c.Duration(steps=60)),
  schedule=c.Schedule(learning_rate=3e-3),
  model=c.Model(
    name="ViT-Ti/4", depth=1, width=16, mlp_dim=16, heads=2, num_classes=4, compute_dtype="float32"
  ),
  data=c.Data(
    image_size=8,
    train_resize_ratio=1.0,
    crop_area=(1.0, 1.0),
    crop_aspect=(1.0, 1.0),
  ),
  report=False,
)


def write(root, counts, seed):
  rng = np.random.default_rng(seed)
  for name, count in counts.items():
    (root / name).mkdir(parents=True)
    for i in range(count):
      pixels = rng.normal(TRAINED.get(name, 250), 8, (8, 8, 3)).clip(0, 255).astype(np.uint8)
      Image.fromarray(pixels).save(root / name / f"{i}.png")


def configured(root, scored):
  data = dataclasses.replace(CONFIG.data, train=c.Dataset(f"folder:{root}/train"))
  return dataclasses.replace(
    CONFIG, data=data, evaluate={"test": Classification(f"folder:{scored}")}
  )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A run of four classes, whose test set has images of two."""
  root = tmp_path_factory.mktemp("lacking")
  write(root / "train", dict.fromkeys(TRAINED, 16), 0)
  write(root / "test", {"shoe": 5, "coat": 3}, 1)
  config = configured(root, root / "test")
  made = runs.make(config, runs.open_data(config), jax.devices()[:1])
  with contextlib.redirect_stdout(io.StringIO()) as said:
    assert launch.train(made, root / "run", StopRequest())
  assert said.getvalue().count("test: no image of: 'bag', 'hat'") == 1
  return root, config


def check_details(folder):
  """The tables are right: every image is found by its class, in the order of the head."""
  with (folder / "predictions.csv").open(newline="") as file:
    rows = list(csv.DictReader(file))
  assert len(rows) == 8
  assert all(f"/{row['label']}/" in row["name"] for row in rows)
  with (folder / "classes.csv").open(newline="") as file:
    found = {row["class"]: (int(row["images"]), int(row["right"])) for row in csv.DictReader(file)}
  right = lambda name: sum(row["label"] == row["prediction"] == name for row in rows)
  images = {"bag": 0, "coat": 3, "hat": 0, "shoe": 5}
  assert found == {name: (count, right(name)) for name, count in images.items()}
  with (folder / "confusion.csv").open(newline="") as file:
    header, *matrix = csv.reader(file)
  assert header[1:] == [row[0] for row in matrix] == list(TRAINED)
  assert [sum(map(int, row[1:])) for row in matrix] == list(images.values())
  return sum(map(right, TRAINED)) / 8


def test_in_training(run):
  root, _ = run
  metrics = metrics_log.read(root / "run")[-1]
  assert metrics["test/top1"] == check_details(root / "run/evaluation/1/test") > 0.7
  assert metrics["test/examples"] == 8


def evaluate(config, root):
  launch.launch(config, root / "run", StopRequest(), mode="evaluate", hosts=launch.Hosts())
  return json.loads((root / "run/evaluation.json").read_text())


def test_in_an_evaluation(run, capsys):
  root, config = run
  trained = metrics_log.read(root / "run")[-1]
  again = evaluate(config, root)
  said = capsys.readouterr().out
  assert "test: no image of: 'bag', 'hat'" in said
  assert {key: again[key] for key in again if "/" in key} == {
    key: pytest.approx(trained[key], rel=1e-5) for key in trained if key.startswith("test/")
  }
  check_details(root / "run/evaluation/2/test")


def test_a_class_that_the_head_lacks_is_named(run):
  root, _ = run
  write(root / "more", {"coat": 1, "shoes": 1}, 2)
  other = configured(root, root / "more")
  with pytest.raises(c.ConfigError, match=r"training data has no class 'shoes' \(it has 'shoe'\)"):
    runs.open_data(other)
  with pytest.raises(c.ConfigError, match=r"more\) has other .*the head has no class 'shoes' \("):
    evaluate(other, root)
