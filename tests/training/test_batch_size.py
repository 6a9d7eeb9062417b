"""A run that goes on with another batch size."""

import dataclasses

import pytest

from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax.devices.hosts import Hosts
from vit_jax.experiments import runs
from vit_jax.process.signals import StopRequest
from vit_jax.storage import metrics_log
from vit_jax.training.launch import launch


def test_it_takes_the_images_that_are_asked(tmp_path, capsys):
  def train(batch_size, images):
    duration = c.Duration(examples=images)
    config = dataclasses.replace(CONFIG, batch_size=batch_size, duration=duration)
    assert launch(config, tmp_path, StopRequest(), mode="train", hosts=Hosts())
    return capsys.readouterr().out

  train(32, 64)
  assert "16 a step, 8 steps; compiling" in train(16, 160)  # 2 steps of 32, 6 of 16
  trained = [line for line in metrics_log.read(tmp_path) if "loss" in line]
  assert (trained[-1]["step"], trained[-1]["data/images"]) == (8, 160)
  assert runs.result(tmp_path)["step"] == 8
  with pytest.raises(c.ConfigError, match="has all of its 8 steps"):
    train(32, 160)
  assert "nothing to train" in train(16, 160)
