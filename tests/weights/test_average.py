"""Whatever comes of a moving average says so, and warns of one that is mostly its start."""

import dataclasses
import json
import logging
import sys

import jax
import pytest

from tests import tiny_run
from tests.programs import ROOT
from vit_jax import config as c
from vit_jax import weights
from vit_jax.config.suggestions import unknown
from vit_jax.devices.hosts import Hosts
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.training import launch, train
from vit_jax.training import run as runs

AVERAGE = "moving average of the parameters"
CONFIG = dataclasses.replace(
  tiny_run.CONFIG,
  duration=c.Duration(steps=6),
  evaluate_every=c.Duration(steps=3),
  optimizer=Adam(ema=0.75),
  report=True,
)


def trained(folder, capsys, **optimizer):
  settings = dataclasses.replace(CONFIG.optimizer, **optimizer)
  config = dataclasses.replace(CONFIG, optimizer=settings)
  made = runs.make(config, runs.open_data(config), jax.devices()[:1])
  assert train.train(made, folder, StopRequest())
  return config, capsys.readouterr().out


def predicted(folder, monkeypatch, capsys, *flags):
  from tools import predict

  photo = ROOT / "docs/images"
  image = next(photo.rglob("*.png"))
  monkeypatch.setattr(sys, "argv", ["predict"])
  predict.main(
    [*flags, "--source", str(folder), "--images", str(image), "--max-pixels", "99999999"]
  )
  return capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("corrected", [True, False])
def test_of_a_run(tmp_path, capsys, caplog, monkeypatch, corrected):
  folder = tmp_path / "run"
  config, said = trained(folder, capsys, ema_corrected=corrected)
  evaluations = [line for line in said.splitlines() if "top-1" in line]
  assert len(evaluations) == 3
  assert all(line.endswith(f" images ({AVERAGE})") for line in evaluations)
  assert said.count("42% of the moving average is still the initial weights") == (not corrected)
  assert said.count("18% of the moving average is still the initial weights") == (not corrected)
  lines = metrics_log.read(folder)
  assert [line["average"] for line in lines if "test/top1" in line] == [1, 1]
  assert not any("average" in line for line in lines if "loss" in line)
  assert AVERAGE in (folder / "report.html").read_text()

  for average in (True, False):
    caplog.clear()
    launch.launch(config, folder, StopRequest(), mode="evaluate", hosts=Hosts(), average=average)
    assert (AVERAGE in capsys.readouterr().out) == average
    found = json.loads((folder / "evaluation.json").read_text())
    assert found["average"] == average
    assert (found["test/loss"] == pytest.approx(lines[-1]["test/loss"])) == average
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert bool(warned) == (average and not corrected)
    assert all("18% of the moving average" in one and "--no-average" in one for one in warned)
    flags = () if average else ("--no-average",)
    assert (AVERAGE in predicted(folder, monkeypatch, capsys, *flags)) == average
    weights.write(tmp_path / "w.npz", weights.read(folder, average=average))
    assert weights.read(tmp_path / "w.npz").card.average == average  # also of an exported file
    assert (AVERAGE in predicted(tmp_path / "w.npz", monkeypatch, capsys)) == average


def test_a_run_without_an_average_does_not_speak_of_one(tmp_path, capsys):
  config, said = trained(tmp_path, capsys, ema=0.0)
  assert "moving average" not in said
  launch.launch(config, tmp_path, StopRequest(), mode="evaluate", hosts=Hosts())
  assert "moving average" not in capsys.readouterr().out


def test_where_it_has_no_effect_it_is_refused(tmp_path):
  with pytest.raises(c.ConfigError, match=r"no-average has no effect in training.*mode=evaluate"):
    launch.launch(CONFIG, tmp_path, StopRequest(), mode="train", hosts=Hosts(), average=False)
  assert "give --no-average" in unknown("config", "evaluate_average", ())
