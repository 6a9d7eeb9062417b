"""The way of a newcomer: own photographs, training, evaluation, prediction.

Runs in real processes, from an empty folder; a wrong turn meets one sentence.
"""

import csv
import io
import json
import re

import numpy as np
import pytest

from tests import programs, walk_photos
from vit_jax import launch, recipes
from vit_jax.config import ConfigError
from vit_jax.devices.hosts import Hosts
from vit_jax.extras.commands import predict
from vit_jax.training import start

# Enough steps for the time to be reckoned.
FEWER = {"duration.steps": 40, "schedule.warmup.steps": 4, "model.depth": 1}
SHORT = [f"--config.{key}={n}" for key, n in FEWER.items()]


def ran(*command):
  result = programs.run(command)
  assert result.returncode == 0, result.stderr
  return result.stdout


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
  """Photographs and a run that was trained on them; what it printed is in `printed`."""
  root = tmp_path_factory.mktemp("walk")
  walk_photos.write(root / "photos", images=12)
  walk_photos.write(root / "more", images=3, seed=1)
  printed = ran(
    *programs.MAIN, f"--config=configs/train.py:{root}/photos", f"--workdir={root}/run", *SHORT
  )
  (root / "printed").write_text(printed)
  return root


def test_the_table_says_what_was_taken_from_where_and_how_long_it_takes(walk):
  printed = (walk / "printed").read_text()
  before, _, after = printed.partition("compiling the first step")
  for said in (
    r"model\.num_classes +3 +the data: 'china', 'flower', 'shapes'",
    r"model\.name +ViT-Ti/8 +33 training images, images of about \d+ pixels",
    r"model\.compute_dtype +float32 +the devices",
    r"data\.train +.*\[:90%\] +a random tenth of each class is scored",
    r"accumulation +1 +a step needs",
  ):
    assert re.search(said, before), said
  assert "held_out: top-1" in after
  told, unit = re.search(r"time +about (\d+) (s|min)", before).groups()
  assert (walk / "run/report.html").is_file()
  lines = [json.loads(line) for line in (walk / "run/metrics.jsonl").read_text().splitlines()]
  (last,) = [line for line in lines if line["step"] == 40 and "time/steps" in line]
  spent = last["time/steps"] + last["time/input"]
  expected = int(told) * (60 if unit == "min" else 1)
  assert spent / 4 - 2 < expected < 4 * spent + 2  # of a few seconds, beside other programs


def table_of(text):
  return list(csv.DictReader(io.StringIO(text)))


def test_evaluation_and_prediction(walk, capsys):
  config = f"--config=configs/evaluate.py:{walk}/run,{walk}/more"
  printed = ran(*programs.MAIN, "--mode=evaluate", config, f"--workdir={walk}/scores")
  assert "own: top-1" in printed
  assert "on 9 images" in printed
  images = ["--images", f"{walk}/more", "--top", "1", "--format", "csv"]
  predict.main(["--source", f"{walk}/run", *images])
  predicted = table_of(capsys.readouterr().out)
  rows = table_of((walk / "scores/evaluation/1/own/predictions.csv").read_text())
  scored = {row["name"]: row for row in rows}
  assert len(predicted) == len(scored) == 9
  for row in predicted:
    same = scored[row["path"]]
    assert row["class"] == same["prediction"]
    assert float(row["probability"]) == pytest.approx(float(same["probability"]), abs=1e-5)


def opened(recipe, folder):
  """Goes as far as a run goes before it touches a device."""
  launch.open_run(recipes.resolve(recipe, []), start.read_recorded(folder), Hosts())


def test_a_folder_of_one_class(tmp_path):
  photos = walk_photos.write(tmp_path / "photos", images=10, classes=("china",))
  with pytest.raises(ConfigError, match="has one class, 'china', so there is nothing to learn"):
    opened(f"configs/train.py:{photos}", tmp_path / "run")


def test_weights_of_no_model(tmp_path):
  np.savez(tmp_path / "odd.npz", a=np.ones((3, 3), np.float32))
  photos = walk_photos.write(tmp_path / "photos", images=10)
  message = r"^config\.init_from=/.*odd\.npz is not a model of this project"
  with pytest.raises(ConfigError, match=message):
    opened(f"configs/finetune.py:{tmp_path}/odd.npz,{photos}", tmp_path / "run")
