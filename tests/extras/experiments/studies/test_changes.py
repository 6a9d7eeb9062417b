"""What counts as a change of a study, and what tells its cells and its weights apart."""

import dataclasses
import hashlib
import json
import math
import os

import pytest

from tests.extras.experiments.studies import stub
from vit_jax import config as c
from vit_jax.config import RunError
from vit_jax.config.recorded import differences
from vit_jax.extras.experiments.studies import (
  Cell,
  Drawing,
  Stage,
  Study,
  changes,
  report,
  store,
)
from vit_jax.extras.experiments.studies.jobs import Job
from vit_jax.storage import files
from vit_jax.storage.paths import path_of


def clear():
  """Forgets what was read, as a new process has."""
  store.sum_of_weights.cache_clear()
  store.fingerprint.cache_clear()


@pytest.fixture(autouse=True)
def _new():
  clear()


def test_a_new_candidate_is_no_change(tmp_path, monkeypatch):
  ran = stub.Runs(monkeypatch)
  few = dataclasses.replace(stub.CHOSEN, options=stub.RATES[:2])
  stub.done(tmp_path, stub.study(0.0, choice=few))
  count = len(ran.called)
  stub.done(tmp_path, stub.study(0.0))
  assert [one.schedule.learning_rate for one in ran.called[count:]] == [1e-2]  # its trial
  assert not (tmp_path / changes.EARLIER).exists()


def test_nothing_is_chosen_if_no_candidate_has_a_number(tmp_path, monkeypatch):
  stub.Runs(monkeypatch, score=lambda one: math.nan)
  with pytest.raises(RunError, match=r"Nothing can be chosen for 'tuning': test/top1 is not a num"):
    stub.done(tmp_path, stub.study(0.0))


def weights_study(path):
  stage = Stage(stub.DIGITS, {**stub.STEPS, "init_from": str(path)}, name="tuning")
  return Study((Cell("a", stage, {"x": 1}),), Drawing(x="x"), seeds=1)


@pytest.mark.parametrize(
  ("weights", "changing"),
  [
    ("w.npz", "w.npz"),
    ("w.npz", "w.npz.json"),
    ("w", "w/checkpoints/9/manifest.json"),
    ("w", "w/model.safetensors"),
  ],
)
def test_other_weights_at_the_same_path_are_other_runs(tmp_path, monkeypatch, weights, changing):
  ran, path = stub.Runs(monkeypatch), tmp_path / changing
  (tmp_path / "w.npz").touch()
  path.parent.mkdir(parents=True, exist_ok=True)
  for text, runs in (("1", 1), ("2", 2), ("1", 2)):
    path.write_text(text)
    os.utime(path, (0, 0))  # neither time nor size tells them apart
    clear()
    stub.done(tmp_path / "study", weights_study(tmp_path / weights))
    assert len(ran.called) == runs


def test_of_a_workdir_the_newest_checkpoint_counts(tmp_path):
  for step, text in ((9, "nine"), (10, "ten")):
    folder = tmp_path / "checkpoints" / str(step)
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(text)
  both = store.sum_of_weights(str(tmp_path))
  assert both == store.sum_of_weights(str(tmp_path / "checkpoints/10"))
  assert both != store.sum_of_weights(str(tmp_path / "checkpoints/9"))
  assert store.sum_of_weights(str(tmp_path / "none")) == ""


@pytest.mark.parametrize("key", ["init_from", "objective.teacher"])
def test_a_run_that_still_trains_is_no_start(tmp_path, monkeypatch, key):
  """Neither if it holds its lock, nor if it saves another checkpoint between two runs."""
  run = tmp_path / "w"

  def save(step):
    files.make_folder(run / f"checkpoints/{step}")
    files.write_text(run / f"checkpoints/{step}/manifest.json", str(step))

  def score(config):
    if config.objective.kind == "distillation":
      save(9)  # while this one trains
    return 0.5

  save(8)
  ran = stub.Runs(monkeypatch, score=score)
  settings = {"objective.kind": "distillation", "objective.teacher": f"{run}/checkpoints/8"}
  stages = (
    Stage(stub.DIGITS, stub.STEPS | settings | {key: str(run)}),
    Stage(stub.DIGITS, stub.STEPS, name="scratch"),
  )
  some = Study(tuple(Cell(f"{x}", stage, {"x": x}) for x, stage in enumerate(stages)), Drawing("x"))
  said = (
    f"{run} still trains, so runs would start from different weights. Wait for its end, or name "
    "one of its checkpoints that stays (config.checkpoint.keep_every): "
    f"{run}/checkpoints/STEP."
  )
  with files.locked(run / "lock"):
    failed, _ = stub.done(tmp_path / "study", some)
  assert failed == [said] * 3
  assert [bool(one.objective.kind == "distillation") for one in ran.called] == [False] * 3
  ran.called.clear()
  failed, _ = stub.done(tmp_path / "study", some)
  assert failed == [said] * 2
  assert len(ran.called) == 1


def result(cell, factors):
  return report.CellResult(cell, factors, 0.5, None, 1, "{}", None)


def test_cells_have_their_labels_where_factors_do_not_tell_them_apart():
  alike = report.cell_table("", [result("adam", {}), result("sgd", {})])
  assert ([row[0] for row in alike.rows], alike.texts) == (["cell", "adam", "sgd"], 1)
  apart = report.cell_table("", [result("a", {"x": "1"}), result("b", {"x": "2"})])
  assert [row[0] for row in apart.rows] == ["x", "1", "2"]


MAE = {"objective.kind": "mae"}
SGD = {"optimizer.kind": "sgd", "schedule.learning_rate": 0.1}


def name_of(settings):
  """The workdir of a run with these settings."""
  clear()
  stage = Stage(stub.DIGITS, settings)
  return store.RunStore(path_of("s")).run(Job(stage, 0)).folder.name


def shared_name(settings):
  """The same, of a run whose settings all kinds have."""
  flags = tuple(f"--config.{key}={value}" for key, value in settings.items())
  config = stub.recipes.resolve(stub.DIGITS, flags)
  lines = differences(c.to_dict(c.Config()), c.to_dict(config))
  sum_ = hashlib.sha256(json.dumps([lines, ""]).encode()).hexdigest()
  return f"training-seed0-{sum_[:10]}"


@pytest.mark.parametrize(
  ("kind", "usual", "other"),
  [
    (MAE, {"objective.decoder_depth": 8}, {"objective.decoder_depth": 2}),
    (SGD, {"optimizer.momentum": 0.9}, {"optimizer.momentum": 0.95}),
  ],
)
def test_settings_that_only_one_kind_has_tell_runs_apart(kind, usual, other):
  assert name_of(kind) == name_of(kind | usual) == shared_name(kind)
  assert name_of(kind | other) != name_of(kind)


def test_another_teacher_at_the_same_path_is_another_run(tmp_path):
  path = tmp_path / "teacher.npz"
  settings = {"objective.kind": "distillation", "objective.teacher": path}
  names = []
  for text in ("1", "2", "1"):
    path.write_text(text)
    names.append(name_of(settings))
  assert names[0] == names[2] != names[1]
