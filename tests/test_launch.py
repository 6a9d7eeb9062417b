"""Runs in this process, from their settings on: which are refused, and how long they are."""

import dataclasses

import cv2
import jax
import numpy as np
import pytest

from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax import launch
from vit_jax.config import RunError
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.experiments import runs as results
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.storage.saving import Checkpoints
from vit_jax.training import init_from, start
from vit_jax.training import run as runs


def launched(config, folder):
  return launch.launch(config, folder, StopRequest(), mode="train", hosts=Hosts())


def too_little(*_, **__):
  raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize(
  ("owner", "name"),
  [(start.states, "create"), (Checkpoints, "restore"), (init_from, "put")],
  ids=["a new state", "a checkpoint", "weights"],
)
def test_a_state_that_does_not_fit(tmp_path, monkeypatch, owner, name):
  monkeypatch.setattr(owner, name, too_little)
  made = runs.make(CONFIG, runs.open_data(CONFIG))
  weights = init_from.Initial(params={}, report="")
  with pytest.raises(RunError, match=r"at the start\. Split .*allocating 9 bytes") as refused:
    launch.train(made, tmp_path, StopRequest(), weights)
  for useless in ("config.accumulation", "config.batch_size", "config.model.remat"):
    assert useless not in str(refused.value)


def test_with_another_batch_size_a_run_takes_the_images_that_are_asked(tmp_path, capsys):
  def train(batch_size, images):
    duration = c.Duration(examples=images)
    config = dataclasses.replace(CONFIG, batch_size=batch_size, duration=duration)
    assert launched(config, tmp_path)
    return capsys.readouterr().out

  train(32, 64)
  assert "16 a step, 8 steps; compiling" in train(16, 160)  # 2 steps of 32, 6 of 16
  trained = [line for line in metrics_log.read(tmp_path) if "loss" in line]
  assert (trained[-1]["step"], trained[-1]["data/images"]) == (8, 160)
  assert results.result(tmp_path)["step"] == 8
  with pytest.raises(c.ConfigError, match="has all of its 8 steps"):
    train(32, 160)
  assert "nothing to train" in train(16, 160)


TOP5 = dataclasses.replace(
  CONFIG,
  model=dataclasses.replace(CONFIG.model, num_classes=0),
  early_stopping=c.EarlyStopping(metric="test/top5"),
)


def test_top5_of_ten_classes_may_end_a_run(tmp_path):
  assert launched(TOP5, tmp_path)
  assert "test/top5" in metrics_log.read(tmp_path)[-1]


def test_top5_of_two_classes_is_refused_before_a_device(tmp_path, monkeypatch):
  for index in range(40):
    path = tmp_path / "images" / "ab"[index % 2] / f"{index}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((16, 16, 3), index, np.uint8))
  source = f"folder:{tmp_path / 'images'}"
  sets = {"test": Classification(source, "[:20%]")}
  data = dataclasses.replace(TOP5.data, train=c.Dataset(source, "[20%:]"))
  monkeypatch.setattr(launch.joining, "connect", lambda *_, **__: pytest.fail("too late"))
  with pytest.raises(c.ConfigError, match=r"metric='test/top5' is not .*test/loss, test/top1\."):
    launched(dataclasses.replace(TOP5, data=data, evaluate=sets, batch_size=8), tmp_path / "run")
