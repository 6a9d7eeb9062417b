"""Runs in this process, from their settings on: which are refused, and how long they are."""

import dataclasses
import time

import cv2
import jax
import numpy as np
import pytest

from tests import resolved
from tests.tiny_run import CONFIG
from vit_jax import config as c
from vit_jax import launch, recipes
from vit_jax.config import RunError
from vit_jax.devices.hosts import Hosts
from vit_jax.evaluation.classification import Classification
from vit_jax.process.console import StopRequest
from vit_jax.storage.saving import Checkpoints
from vit_jax.training import init_from, start


def opened(config, folder):
  return launch.open_run(config, start.read_recorded(folder), Hosts())


def too_little(*_, **__):
  raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


@pytest.mark.parametrize(
  ("owner", "name"),
  [(start.train_step, "create_state"), (Checkpoints, "restore"), (init_from, "put")],
  ids=["a new state", "a checkpoint", "weights"],
)
def test_a_state_that_does_not_fit(tmp_path, monkeypatch, owner, name):
  monkeypatch.setattr(owner, name, too_little)
  made = resolved.run(CONFIG)
  weights = init_from.Initial(params={}, report="")
  with pytest.raises(RunError, match=r"at the start\. Split .*allocating 9 bytes") as refused:
    launch.train(made, tmp_path, StopRequest(), weights)
  for useless in ("config.accumulation", "config.batch_size", "config.model.remat"):
    assert useless not in str(refused.value)


def test_the_time_of_a_call_begins_with_it(tmp_path, monkeypatch):
  """Its start-up counts, as that of the command does."""
  times = []
  checked = lambda: times.append(time.monotonic())
  monkeypatch.setattr(launch.program, "check_jax", checked)
  monkeypatch.setattr(launch, "train", lambda *args: times.append(args[4]))
  launch.launch(CONFIG, tmp_path, StopRequest(), mode="train", hosts=Hosts())
  check, began = times
  assert began <= check


TOP5 = dataclasses.replace(
  CONFIG,
  model=dataclasses.replace(CONFIG.model, num_classes=c.AUTO),
  early_stopping=c.EarlyStopping(metric="test/top5"),
)


def test_top5_may_end_a_run_of_more_than_five_classes_alone(tmp_path):
  """Only the data tells how many there are."""
  config, _, _ = opened(TOP5, tmp_path)
  assert config.model.num_classes == 10
  for index in range(40):
    path = tmp_path / "images" / "ab"[index % 2] / f"{index}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((16, 16, 3), index, np.uint8))
  source = f"folder:{tmp_path / 'images'}"
  sets = {"test": Classification(source, "[:20%]")}
  data = dataclasses.replace(TOP5.data, train=c.Dataset(source, "[20%:]"))
  two = dataclasses.replace(TOP5, data=data, evaluate=sets, batch_size=8)
  with pytest.raises(c.ConfigError, match=r"metric='test/top5' is not .*test/top1, test/macro_p"):
    opened(two, tmp_path / "run")


def test_what_has_no_effect_with_the_labels_of_the_data_is_refused(tmp_path):
  """The loss is left to the data, so it is known only when that is open."""
  config = recipes.resolve("configs/vit_digits.py", ["--config.loss.over_classes=mean"])
  with pytest.raises(c.ConfigError, match=r"over_classes='mean' has no effect .*kind='softmax'"):
    opened(config, tmp_path / "new")
