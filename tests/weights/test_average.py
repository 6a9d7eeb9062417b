"""Whatever comes of a moving average says so, and warns of one that is mostly its start."""

import dataclasses
import logging
import sys

import cv2
import numpy as np
import pytest

from tests import tiny_run as tiny
from vit_jax import config as c
from vit_jax import launch, weights
from vit_jax.devices.hosts import Hosts
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.process.console import StopRequest
from vit_jax.weights.card import average_warning

WARNING = "59% of the moving average is still the initial weights; use --raw-params"
ANEW = f"{WARNING}, or train anew with --config.optimizer.ema_corrected=True."
CHANGING = Adam(ema=0.996, end_ema=1.0, ema_corrected=False)


@pytest.mark.parametrize(
  ("optimizer", "steps", "warning"),
  [
    (Adam(ema=0.9, ema_corrected=False), 5, ANEW),
    (Adam(ema=0.9, ema_corrected=False), 44, ""),
    (Adam(ema=0.9, ema_corrected=True), 5, ""),
    (Adam(ema=0.0), 5, ""),
    (CHANGING, 130, f"{WARNING}."),
    (CHANGING, 500, f"{WARNING}.".replace("59", "15")),
    (CHANGING, 2000, f"{WARNING}.".replace("59", "2")),
  ],
)
def test_an_average_that_holds_its_start(optimizer, steps, warning):
  assert average_warning(dataclasses.asdict(optimizer), steps, 2000) == warning


def test_training_says_so(tiny_run):
  lines = tiny.console(tiny_run).splitlines()
  evaluations = [line for line in lines if "top-1" in line]
  assert evaluations
  assert all(line.endswith(" images (moving average of the parameters)") for line in evaluations)
  assert sum(WARNING in line for line in lines) == 1


@pytest.mark.parametrize("flags", [[], ["--raw-params"]])
def test_reading_says_so(tiny_run, tmp_path, monkeypatch, capsys, caplog, flags):
  from vit_jax.extras.commands import predict

  monkeypatch.setattr(sys, "argv", ["predict"])
  cv2.imwrite(str(tmp_path / "0.png"), np.zeros((16, 16, 3), np.uint8))
  predict.main([*flags, "--source", str(tiny_run), "--images", str(tmp_path / "0.png")])
  assert ("moving average of the parameters" in capsys.readouterr().err) == (not flags)
  warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
  assert [WARNING in message for message in warned] == [True] * (not flags)
  weights.write(tmp_path / "w.npz", weights.read(tiny_run, average=not flags))
  assert weights.read(tmp_path / "w.npz").card.average == (not flags)


def test_where_it_has_no_effect_it_is_refused(tmp_path):
  with pytest.raises(c.ConfigError, match=r"raw-params has no effect in training.*mode=evaluate"):
    launch.launch(tiny.CONFIG, tmp_path, StopRequest(), mode="train", hosts=Hosts(), average=False)
