"""The flagship recipe, shrunk by overrides, on multi-label JPEGs of many sizes in TFDS."""

import numpy as np
import pytest

from tests import programs
from tests.data import tfds_fixture
from vit_jax.storage import metrics_log

CLASSES = 6
SMALL = {
  "model.num_classes": CLASSES,
  "model.depth": 2,
  "model.width": 32,
  "model.mlp_dim": 64,
  "model.heads": 2,
  "data.image_size": 32,
  "data.train.split": "train",
  "evaluate.val.split": "test",
  "batch_size": 16,
  "duration.steps": 24,
  "schedule.warmup.steps": 4,
  "schedule.learning_rate": 0.1,
  "log_every.steps": 2,
  "evaluate_every.steps": 12,
  "checkpoint.every.steps": 12,
}


def command(workdir, name):
  sources = {"data.train.source": f"tfds:{name}", "evaluate.val.source": f"tfds:{name}"}
  overrides = [f"--config.{key}={value}" for key, value in (SMALL | sources).items()]
  config = "--config=configs/vit_l16_jft.py:14"
  return [*programs.MAIN, config, f"--workdir={workdir}", *overrides]


def test_trains_and_evaluates(tmp_path):
  folder = tmp_path / "tfds"
  name = tfds_fixture.write_multilabel_tfds(folder, num_examples=60, num_classes=CLASSES, seed=0)
  where = dict(TFDS_DATA_DIR=str(folder), devices=2)
  run = tmp_path / "run"
  result = programs.run(command(run, name), **where)
  assert result.returncode == 0, result.stderr

  losses = [line["loss"] for line in metrics_log.read_lines(run) if "loss" in line]
  assert losses[0] == pytest.approx(CLASSES * np.log1p(np.exp(-10)) + 10 * 1.5, rel=0.5)
  assert losses[-1] < 0.9 * losses[0]
  assert [line["step"] for line in metrics_log.read_lines(run) if "loss" not in line] == [12, 24]
