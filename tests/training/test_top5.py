"""Top-5 stops a run early where the number of classes comes from the data."""

import dataclasses

import cv2
import numpy as np
import pytest

from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax.devices.hosts import Hosts
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.training import launch

TOP5 = dataclasses.replace(
  CONFIG,
  model=dataclasses.replace(CONFIG.model, num_classes=0),
  early_stopping=c.EarlyStopping(metric="test/top5"),
)


def train(config, folder):
  return launch.launch(config, folder, StopRequest(), mode="train", hosts=Hosts())


def test_of_ten_classes(tmp_path):
  assert train(TOP5, tmp_path)
  assert "test/top5" in metrics_log.read(tmp_path)[-1]


def test_of_two_classes_it_is_refused_before_a_device(tmp_path, monkeypatch):
  for index in range(40):
    path = tmp_path / "images" / "ab"[index % 2] / f"{index}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((16, 16, 3), index, np.uint8))
  source = f"folder:{tmp_path / 'images'}"
  sets = {"test": c.EvaluationSet(source, "[:20%]")}
  data = dataclasses.replace(TOP5.data, train=c.Dataset(source, "[20%:]"), evaluate=sets)
  monkeypatch.setattr(launch.joining, "connect", lambda *_, **__: pytest.fail("too late"))
  with pytest.raises(c.ConfigError, match=r"metric='test/top5' is not .*test/loss, test/top1\."):
    train(dataclasses.replace(TOP5, data=data, batch_size=8), tmp_path / "run")
