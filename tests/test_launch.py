"""Runs in this process, from their settings on: which are refused, and how long they are."""

import dataclasses
import errno
import os
import shutil
import time
import types

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
from vit_jax.evaluation.spec import Result
from vit_jax.extras.buckets.errors import RefusedError
from vit_jax.process.console import StopRequest
from vit_jax.storage import files, workdir
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
  made = resolved.run(CONFIG, jax.devices()[:1])
  weights = init_from.Initial(params={}, report="")
  with pytest.raises(RunError, match=r"at the start\. Split .*allocating 9 bytes") as refused:
    launch.train(made, tmp_path, StopRequest(), weights)
  for useless in ("config.accumulation", "config.batch_size", "config.model.remat"):
    assert useless not in str(refused.value)


LONGER = dataclasses.replace(CONFIG, duration=c.Duration(steps=10))
WIDER = dataclasses.replace(LONGER.model, width=16)


@pytest.mark.parametrize(
  ("changes", "described", "said"),
  [
    ({"model": WIDER}, {}, r"does not fit the config.*width: 8 -> 16"),
    ({}, {"class_names": ["a", "b"]}, "was trained on other classes"),
  ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_before_a_step_is_compiled(
  tiny_run, changes, described, said
):
  recorded = start.read_recorded(tiny_run)
  recorded = dataclasses.replace(recorded, meta=recorded.meta | described)
  config = dataclasses.replace(LONGER, **changes)
  _, data, facts = launch.open_run(config, recorded, Hosts())
  with pytest.raises(c.ConfigError, match=said):
    launch.make_run(config, data, facts, recorded)


@pytest.mark.parametrize("since", [0, 1])
def test_a_run_that_was_stopped_early_times_and_compiles_no_step(tiny_run, monkeypatch, since):
  timed = []
  monkeypatch.setattr(launch.pace, "expected_seconds", timed.append)
  stopping = c.EarlyStopping(metric="test/top1", patience=1)
  config = dataclasses.replace(LONGER, early_stopping=stopping)
  recorded = start.read_recorded(tiny_run)
  best = {"metric": "test/top1", "step": 5 - since, "value": 2.0, "since": since, "seen": 5}
  meta = recorded.meta | {"best": best}
  recorded = dataclasses.replace(recorded, settings=c.to_dict(config), meta=meta)
  config = dataclasses.replace(config, batch_size=c.AUTO)
  _, data, facts = launch.open_run(config, recorded, Hosts())
  run, _ = launch.make_run(config, data, facts, recorded)
  assert run.left == (not since)
  assert len(timed) == run.left


def test_the_time_of_a_call_begins_with_it(tmp_path, monkeypatch):
  """Its start-up counts, as that of the command does."""
  times = []
  checked = lambda: times.append(time.monotonic())
  monkeypatch.setattr(launch.program, "check_jax", checked)
  monkeypatch.setattr(launch, "train", lambda *args: times.append(args[4]))
  launch.launch(CONFIG, tmp_path, StopRequest(), mode="train", hosts=Hosts())
  check, began = times
  assert began <= check


def test_hosts_may_see_another_newest_checkpoint_of_a_run_that_they_evaluate(
  tiny_run, tmp_path, monkeypatch
):
  """It trains meanwhile; all score the checkpoint that the first process chooses."""

  class Connecting(Exception):
    pass

  def connect(config, hosts, facts):
    raise Connecting(facts())

  monkeypatch.setattr(launch.fingerprint, "connect", connect)

  def facts():
    with pytest.raises(Connecting) as raised:
      launch.launch(CONFIG, tmp_path, StopRequest(), mode="evaluate", hosts=Hosts())
    return raised.value.args[0]

  none = facts()
  shutil.copytree(tiny_run, tmp_path, dirs_exist_ok=True)
  one = facts()
  shutil.copytree(tmp_path / "checkpoints/5", tmp_path / "checkpoints/6")
  assert facts() == one
  assert none | {"the newest checkpoint": one["the newest checkpoint"]} == one != none


def full(path, *_):
  raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def forbidden(path, *_):
  raise RefusedError(errno.EACCES, "no access", str(path))


@pytest.mark.parametrize(
  ("fails", "why"),
  [(full, "--workdir={0} cannot be written to: No space left on device"), (forbidden, "no access")],
)
def test_an_evaluation_that_cannot_be_written_is_refused_before_it_scores(
  tiny_run, monkeypatch, fails, why
):
  monkeypatch.setattr(files, "check_writable", fails)
  monkeypatch.setattr(launch.evaluate, "evaluate", None)
  words = (
    rf"^{why.format(tiny_run)} \({tiny_run}\)\. "
    rf"To score .* evaluate {tiny_run} DATA --workdir=DIR, .* --config\.init_from={tiny_run} "
  )
  with pytest.raises(c.ConfigError, match=words):
    launch.launch(CONFIG, tiny_run, StopRequest(), mode="evaluate", hosts=Hosts())


def test_metrics_that_cannot_be_written_are_printed(tmp_path, monkeypatch, capsys):
  monkeypatch.setattr(files, "write_bytes", full)
  scored = [("test", Result({"top1": 0.5, "loss": 1.0, "examples": 2}))]
  read = types.SimpleNamespace(origin={"weights": "w.npz"})
  with pytest.raises(workdir.WriteError):
    launch.evaluate.report(read, scored, tmp_path)
  assert "50.00%" in capsys.readouterr().out


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
  with pytest.raises(
    c.ConfigError, match=r"metric='test/top5' is not .*test/top1, test/ece, test/macro_p"
  ):
    opened(two, tmp_path / "run")


def test_what_has_no_effect_with_the_labels_of_the_data_is_refused(tmp_path):
  """The loss is left to the data, so it is known only when that is open."""
  config = recipes.resolve("configs/vit_digits.py", ["--config.loss.over_classes=mean"])
  with pytest.raises(c.ConfigError, match=r"over_classes='mean' has no effect .*kind='softmax'"):
    opened(config, tmp_path / "new")
