"""A weight format is one file and one line: a toy goes through the main program and the tools."""

import dataclasses
import json

import cv2
import numpy as np
import pytest

from tests.tiny_run import CONFIG
from vit_jax import launch, registry, weights
from vit_jax.config import ConfigError, Duration
from vit_jax.extras.commands import export, predict
from vit_jax.process.console import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import WeightFormat


def load(path):
  return nest({name: np.float32(x) for name, x in json.loads(path.read_text()).items()})


def save(path, params, card):
  path.write_text(json.dumps({name: x.tolist() for name, x in flatten(params).items()}))


def notes(params, card):
  return ["It is for children from three years on."]


TOY = WeightFormat(words=".toy", suffix=".toy", load=load, save=save, notes=notes)


def run(folder, mode, **changes):
  schedule = dataclasses.replace(CONFIG.schedule, decay="constant")  # one program for all lengths
  config = dataclasses.replace(CONFIG, schedule=schedule, **changes)
  return launch.launch(config, folder, StopRequest(), mode=mode, hosts=launch.Hosts())


@pytest.mark.usefixtures("one_device")
def test_it_is_written_predicted_with_evaluated_and_started_from(
  monkeypatch, tmp_path, tiny_run, capsys
):
  monkeypatch.setitem(registry.WEIGHT_FORMATS, "toy", "tests.seams.test_weight_format:TOY")
  path, image = tmp_path / "w.toy", tmp_path / "0.png"
  export.main(["--source", str(tiny_run), "--output", str(path), "--verify"])
  said = capsys.readouterr().out
  assert "after reading it again: 0" in said
  assert notes({}, None)[0] in said
  assert weights.trained_on(path) == weights.trained_on(tiny_run) != ()

  cv2.imwrite(str(image), np.zeros((16, 16, 3), np.uint8))
  predict.main(["--source", str(path), "--images", str(image), "--top=10"])
  printed = capsys.readouterr()
  assert "moving average" in printed.err
  assert printed.out.count("%") == 10

  assert run(tmp_path / "run", "train", init_from=str(path), duration=Duration(steps=6))
  assert f"Started from the moving average of the parameters of {path}" in capsys.readouterr().out
  path.rename(tmp_path / "away.toy")  # a run that goes on does not read the weights again
  assert run(tmp_path / "run", "train", init_from=str(path), duration=Duration(steps=7))
  assert "Started from" not in capsys.readouterr().out
  (tmp_path / "away.toy").rename(path)

  run(tmp_path / "evaluated", "evaluate", init_from=str(path))
  scores = json.loads((tmp_path / "evaluated/evaluation.json").read_text())
  (line,) = [line for line in metrics_log.read_lines(tiny_run) if "test/loss" in line]
  assert scores["test/loss"] == pytest.approx(line["test/loss"])
  assert scores["average"]

  with pytest.raises(ConfigError, match=r"in a known format: .*, \.toy"):
    weights.load(tmp_path)
  with pytest.raises(ConfigError, match=r"these can be written: .*w\.toy \(toy\)"):
    weights.save(tmp_path / "w.tar", {})
