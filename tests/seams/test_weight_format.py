"""A weight format is one file and one line: a toy goes through the main program and the tools."""

import dataclasses
import json

import cv2
import numpy as np
import pytest

from tests.tiny_run import CONFIG
from tools import export, predict
from vit_jax import launch, registry, weights
from vit_jax.config import ConfigError, Duration
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import WeightFormat


def load(path):
  return nest({name: np.float32(x) for name, x in json.loads(path.read_text()).items()})


def save(path, params, card):
  path.write_text(json.dumps({name: x.tolist() for name, x in flatten(params).items()}))


def notes(params):
  return ["It is for children from three years on."]


TOY = WeightFormat(words=".toy", suffix=".toy", load=load, save=save, notes=notes)


@pytest.fixture
def toy(monkeypatch, tmp_path, tiny_run, capsys):
  """A trained run, exported to the toy format."""
  monkeypatch.setitem(registry.WEIGHT_FORMATS, "toy", "tests.seams.test_weight_format:TOY")
  path = tmp_path / "w.toy"
  export.main(["--source", str(tiny_run), "--output", str(path), "--verify"])
  report = capsys.readouterr().out
  assert "after reading it again: 0" in report
  assert notes({})[0] in report
  return path


def run(folder, mode, **changes):
  config = dataclasses.replace(CONFIG, **changes)
  return launch.launch(config, folder, StopRequest(), mode=mode, hosts=launch.Hosts())


def test_it_is_predicted_with(toy, tmp_path, capsys):
  cv2.imwrite(str(tmp_path / "0.png"), np.zeros((16, 16, 3), np.uint8))
  predict.main(["--source", str(toy), "--images", str(tmp_path / "0.png"), "--top=10"])
  printed = capsys.readouterr()
  assert "moving average" in printed.err
  assert printed.out.count("%") == 10


def test_a_run_starts_from_it(toy, tmp_path, capsys):
  assert run(tmp_path / "run", "train", init_from=str(toy), duration=Duration(steps=6))
  assert f"Started from the moving average of the parameters of {toy}" in capsys.readouterr().out


def test_it_is_evaluated(toy, tiny_run, tmp_path):
  run(tmp_path / "run", "evaluate", init_from=str(toy))
  scores = json.loads((tmp_path / "run/evaluation.json").read_text())
  (line,) = [line for line in metrics_log.read_lines(tiny_run) if "test/loss" in line]
  assert scores["test/loss"] == pytest.approx(line["test/loss"])
  assert scores["average"]
  assert weights.trained_on(toy) == weights.trained_on(tiny_run) != ()


def test_it_is_named_where_formats_are(toy, tmp_path):
  with pytest.raises(ConfigError, match=r"in a known format: .*, \.toy"):
    weights.load(tmp_path)
  with pytest.raises(ConfigError, match=r"these can be written: .*w\.toy \(toy\)"):
    weights.save(tmp_path / "w.tar", {})
