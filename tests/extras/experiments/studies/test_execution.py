"""Runs of a study: order, sharing, choice on held-out data, stops, failures, extension."""

import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests import buckets, programs
from tests.extras.experiments.studies import stub
from vit_jax import models, recipes
from vit_jax.config import ConfigError, RunError, Stopped
from vit_jax.data.identity import Identity
from vit_jax.extras.experiments import runs
from vit_jax.extras.experiments.studies import (
  Cell,
  Choice,
  Drawing,
  Stage,
  Study,
  execution,
  jobs,
  results,
  runner,
)
from vit_jax.extras.experiments.studies.jobs import Job
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.process import console
from vit_jax.storage import files
from vit_jax.storage.paths import path_of
from vit_jax.training import start
from vit_jax.training.run import open_data

ITSELF = "--raw-params"


def of(configs, split):
  return [one for one in stub.named(configs) if one[3] == split]


def test_order_sharing_and_choice(tmp_path, monkeypatch):
  ran, some = stub.Runs(monkeypatch), stub.study(0.0, 0.1)
  failed, lines = stub.done(tmp_path, some)
  assert failed == []
  found = stub.named(ran.called)
  assert len(found) == len(set(map(repr, ran.called))) == 2 + 2 * 3 + 2 * 2
  trials = of(ran.called, "train")
  assert [one[1:3] for one in trials] == [(1e-3, 0), (3e-3, 0), (1e-2, 0)] * 2
  tuned = [one for one, config in zip(found, ran.called, strict=True) if config.init_from]
  assert {one[1] for one in tuned if one[3] == "test"} == {3e-3}
  for config in ran.called:
    if config.init_from:  # the pre-training of its own seed, done before
      before = pathlib.Path(config.init_from).name
      assert before.startswith(f"pretraining-seed{config.seed}-")
  means = {line.cell: line.mean for line in lines}
  assert means == pytest.approx({"dropout 0.0": 0.505, "dropout 0.1": 0.515})
  assert lines[0].deviation == pytest.approx(0.01 / 2**0.5)  # n - 1
  assert [line.seeds for line in lines] == [2, 2]


@pytest.mark.parametrize("key", ["data.train", "evaluate.test"])
def test_scores_of_runs_on_changed_images_are_not_compared(tmp_path, monkeypatch, key):
  stub.Runs(monkeypatch)
  group, name = key.split(".")

  def read(folder):
    changed = "seed1" in folder.name
    images = Identity(9, "none", "n", "s", str(changed))
    dataset = {"source": "folder:photos", "split": "val", "resize": float(changed)}
    return start.Recorded(folder, settings={group: {name: dataset}}, data={f"config.{key}": images})

  monkeypatch.setattr(start, "read_recorded", read)
  with pytest.raises(RunError, match=r"images of folder:photos .* the runs pre.*other content"):
    stub.done(tmp_path, stub.study(0.0, seeds=2))
  stub.done(tmp_path / "one", stub.study(0.0, seeds=1))


def test_test_images_are_not_there_while_settings_are_chosen(tmp_path, monkeypatch):
  """Every run opens its data; the folder of test images is moved away while a trial does."""
  for kind in ("train", "test"):
    for number in range(40):
      path = tmp_path / kind / f"{number % 10}" / f"{number}.png"
      path.parent.mkdir(parents=True, exist_ok=True)
      Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(path)
  train, test, away = (tmp_path / name for name in ("train", "test", "away"))
  settings = {"batch_size": 4, "data.train.source": f"folder:{train}", "data.train.split": ""}
  settings |= {"evaluate.test.source": f"folder:{test}", "evaluate.test.split": ""}
  held_out = {"data.train.split": "[:50%]", "evaluate.test.split": "[50%:]"}
  choice = Choice(stub.RATES, held_out | {"evaluate.test.source": f"folder:{train}"})
  trials = []

  def score(config):
    trials.append(config.evaluate["test"].split == "[50%:]")
    test.rename(away) if trials[-1] else None
    open_data(config)
    away.rename(test) if trials[-1] else None
    return 0.5

  stub.Runs(monkeypatch, score=score)
  stage = Stage(stub.DIGITS, stub.STEPS | settings, choice=choice)
  some = Study((Cell("a", stage, {"x": 1}),), Drawing(x="x"), seeds=2)
  assert stub.runner(tmp_path / "study", some).checked_costs(data=True)
  assert stub.done(tmp_path / "study", some)[0] == []
  assert trials == [True] * 3 + [False] * 2


def test_the_first_of_equally_good_candidates_is_chosen_and_nan_never(tmp_path, monkeypatch):
  worth = {1e-3: float("nan"), 3e-3: 0.5, 1e-2: 0.5}
  stub.Runs(monkeypatch, score=lambda config: worth[config.schedule.learning_rate])
  _, (line,) = stub.done(tmp_path, stub.study(0.0))
  assert line.chosen == '{"schedule.learning_rate": 0.003}'


def test_a_finished_study_does_nothing_and_an_extension_its_own_cell_alone(tmp_path, monkeypatch):
  ran = stub.Runs(monkeypatch)
  stub.done(tmp_path, stub.study(0.0))
  before = (tmp_path / "results.csv").read_bytes()
  count = len(ran.called)
  stub.done(tmp_path, stub.study(0.0))
  assert len(ran.called) == count
  assert (tmp_path / "results.csv").read_bytes() == before
  stub.done(tmp_path, stub.study(0.0, 0.1))
  assert [one.model.dropout for one in ran.called[count:]] == [0.1] * (3 + 2)
  count = len(ran.called)
  stub.done(tmp_path, stub.study(0.0, 0.1, seeds=3))
  assert {one.seed for one in ran.called[count:]} == {2}


@pytest.fixture
def bucket():
  """A folder in a bucket."""
  with buckets.served("gs"):
    yield path_of(f"gs://{buckets.BUCKET}/a study")


def test_a_study_in_a_bucket_is_one_on_a_disk(tmp_path, bucket, monkeypatch):
  """Where a run has failed, too: what it printed is there, before what it printed later."""
  some, fails = (
    stub.study(0.0, choice=Choice(stub.RATES[:1]), seeds=1),
    lambda config: config.init_from,
  )
  ran = stub.Runs(monkeypatch, fails)
  for folder in (tmp_path, bucket):
    ran.fails = fails
    (sentence, *_), _ = stub.done(folder, some)
    assert "It failed. All that it printed is in" in sentence
    ran.fails = lambda config: False
    stub.done(folder, some)
    number = len(ran.called)
    assert stub.done(folder, some)[0] == []
    assert len(ran.called) == number
  names = sorted(name for name in files.files_below(tmp_path) if not name.endswith(".lock"))
  assert names == sorted(files.files_below(bucket))
  read = lambda folder, name: files.read_bytes(folder / name, most=2**24).decode()
  for name in names:
    if name.endswith(".csv"):
      assert read(bucket, name).replace(f"{bucket}", "FOLDER") == read(tmp_path, name).replace(
        f"{tmp_path}", "FOLDER"
      )
  again = "It said something.\n"
  logs = [read(bucket, name) for name in names if name.endswith(".log")]
  assert {*logs} == {again, f"{again}vit_jax: It failed.\n{again}"}
  before = [config.init_from for config in ran.called if config.init_from]
  assert before[-1].startswith(f"{bucket}/runs/pretraining-seed")


def test_weights_are_evaluated_again_with_other_settings(tmp_path, monkeypatch):
  """Nothing is trained again; a damaged result is named."""
  ran = stub.Runs(monkeypatch, score=lambda _: 0.5 if ITSELF in ran.commands[-1] else 0.75)
  (cell,) = stub.study(0.0, choice=Choice()).cells
  again = dataclasses.replace(
    cell.stage, name="last", after=cell.stage, mode="evaluate", average=False
  )
  cells = (cell, Cell("again", again, cell.factors))
  some = Study(cells, Drawing(x="dropout"), seeds=2)
  failed, lines = stub.done(tmp_path, some)
  assert failed == []
  assert [line.mean for line in lines] == [0.75, 0.5]
  assert len(ran.called) == 2 * 3
  assert [row["steps"] for row in results.read_rows(tmp_path / "results.csv")] == ["20"] * 4
  tuned = {
    config.init_from
    for config, command in zip(ran.called, ran.commands, strict=True)
    if ITSELF in command
  }
  assert {pathlib.Path(path).name.split("-")[0] for path in tuned} == {"tuning"}
  stub.done(tmp_path, some)
  assert len(ran.called) == 2 * 3
  trained = dataclasses.replace(again, mode="train", average=True)  # would be another run
  names = {RunStore(tmp_path).run(Job(stage, 0)).folder.name for stage in (again, trained)}
  assert len(names) == 2
  (path, _) = (tmp_path / "runs").glob("last-*/evaluation.json")
  path.write_text("[")
  with pytest.raises(RunError, match=r"evaluation.json is damaged .*: remove it to evaluate"):
    stub.done(tmp_path, some)


def test_what_a_row_cost_is_of_the_chosen_candidate(tmp_path, monkeypatch):
  """Images of 32 px cost more than those of 16 px, and the second candidate wins."""
  stub.Runs(monkeypatch, score=lambda config: config.data.image_size / 100)
  sizes = tuple({"data.image_size": side} for side in (16, 32))
  some = stub.study(0.0, choice=Choice(sizes, stub.HELD_OUT), seeds=1)
  found = stub.runner(tmp_path, some)
  costs = found.checked_costs()
  assert found.run(jobs.of_study(some), costs, jobs=1) == []
  found.results(costs)
  (row,) = results.read_rows(tmp_path / "results.csv")
  assert json.loads(row["chosen"]) == {"data.image_size": 32}
  flops = {
    side: config.objective.configured(config, models.configured(config.model)).training_flops(side)
    for side in (16, 32)
    for config in [recipes.resolve(stub.DIGITS, [])]
  }
  expected = 10 * 64 * (flops[16] + flops[32]) / 1e18  # pre-training, then what was chosen
  assert float(row["exaflops"]) == pytest.approx(expected)


def test_waves_need_nothing_of_themselves(tmp_path, monkeypatch):
  """As the jobs of a cluster do them: each run by its number."""
  ran, some = stub.Runs(monkeypatch), stub.study(0.0, 0.1)
  with pytest.raises(ConfigError, match=r"--only=2:0 .* cannot start yet"):
    stub.runner(tmp_path, some).asked_jobs("2:0")
  for number, wave in enumerate(jobs.waves(jobs.of_study(some))):
    chosen = [stub.runner(tmp_path, some).asked_jobs(f"{number}:{i}") for i in range(len(wave))]
    for (job,) in reversed(chosen):
      stub.runner(tmp_path, some).run([job], stub.costs(some), jobs=1)
  assert len(ran.called) == len(jobs.of_study(some)) == 12
  stub.done(tmp_path, some)
  assert len(ran.called) == 12
  cell = stub.runner(tmp_path, some).asked_jobs("dropout 0.1")
  assert cell == jobs.of_cell(some.cells[1], seeds=2)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_failed_run_costs_no_other_and_is_done_later(tmp_path, monkeypatch, jobs):
  ran = stub.Runs(monkeypatch, fails=lambda one: one.model.dropout == 0.1)
  some = stub.study(0.0, 0.1)
  failed, lines = stub.done(tmp_path, some, jobs=jobs)
  assert len(failed) == 3  # its trials; what needs their choice was not tried
  assert all("failed with exit status 1: vit_jax: It failed." in said for said in failed)
  assert [line.cell for line in lines] == ["dropout 0.0"]
  with pytest.raises(RunError, match=r"It failed.*\.log\. 2 more failed. All other runs are kept"):
    runner.raise_failures(failed)
  count, ran.fails = len(ran.called), lambda one: False
  assert stub.done(tmp_path, some, jobs=jobs)[0] == []
  assert {one.model.dropout for one in ran.called[count:]} == {0.1}


def test_a_run_that_was_killed_is_said_to_be(tmp_path):
  run = RunStore(tmp_path).run(Job(stub.PRETRAINING, 0))
  said = execution.ending(run, -signal.SIGKILL, tmp_path / "x.log", stopped=False)
  assert said.startswith("Pretraining, seed 0 was killed by SIGKILL; look whether memory ran out.")


KILLED = """
import os, pathlib, signal, sys
from tests.extras.experiments.studies import stub
from vit_jax.extras.experiments import runs
folder, moment = pathlib.Path(sys.argv[1]), sys.argv[2]

def call(children, command, output=None):
  with (folder / "calls").open("a") as calls:
    calls.write(stub.folder_of(command).name + " " + moment + "\\n")
  if moment == "before":
    os.kill(os.getpid(), signal.SIGKILL)
  config = stub.config_of(command)
  stub.finish(stub.folder_of(command), config, stub.score_of(config))
  if moment == "after":
    os.kill(os.getpid(), signal.SIGKILL)
  return 0

runs.Children.call = call
stub.done(folder, stub.study(0.0, seeds=1))
"""


def test_kill_9_loses_nothing(tmp_path):
  def status(moment):
    command = [sys.executable, "-c", KILLED, str(tmp_path), moment]
    return subprocess.run(command, cwd=programs.ROOT, capture_output=True, timeout=300).returncode

  for moment in ("after", "before"):
    assert status(moment) == -signal.SIGKILL
  assert status("never") == 0
  calls = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
  finished = [name for name, moment in calls if moment != "before"]
  assert len(finished) == len(set(finished)) == 1 + 3 + 1
  assert len(results.read_rows(tmp_path / "results.csv")) == 1


def test_a_run_that_was_killed_before_its_last_save_is_not_started_from(tmp_path, monkeypatch):
  ran, some = stub.Runs(monkeypatch), stub.study(0.0, choice=Choice(), seeds=1)
  store, first = RunStore(tmp_path), Job(stub.PRETRAINING, 0)
  run = store.run(first)
  stub.finish(run.folder, stub.recipes.resolve(run.recipe, run.overrides), 0.5)
  shutil.rmtree(run.folder / "checkpoints" / "10")
  assert store.done(first)
  stub.done(tmp_path, some)
  assert [bool(one.init_from) for one in ran.called] == [False, True]


def test_runs_from_weights_that_were_trained_again_are_named(tmp_path, monkeypatch):
  ran, some = stub.Runs(monkeypatch), stub.study(0.0, 0.1, choice=Choice(), seeds=1)
  plain, manifests = ran._call, ["{}"] * 4 + ["other"] * 3

  def call(command, output):
    status = plain(command, output)
    (manifest,) = stub.folder_of(command).glob("checkpoints/*/manifest.json")
    manifest.write_text(manifests.pop(0))
    return status

  def remove(stage):
    for path in tmp_path.glob(f"runs/{stage}-*/"):
      shutil.rmtree(path)

  ran._call = call
  for _ in range(2):  # trained again to the same weights
    assert stub.done(tmp_path, some)[0] == []
    remove("pretraining")
  said = (
    r"pretraining-\S+ was repeated, and may have other weights than those that (tuning-\S+,? ){2}"
  )
  for _ in range(2):
    with pytest.raises(RunError, match=said):
      stub.done(tmp_path, some)
  remove("tuning")
  assert stub.done(tmp_path, some)[0] == []
  assert [bool(config.init_from) for config in ran.called] == [0, 1, 1, 0, 0, 1, 1]


def test_a_run_of_another_command_is_waited_for(tmp_path, monkeypatch):
  """One that outlived a study that was killed."""
  ran, some = stub.Runs(monkeypatch), stub.study(0.0, choice=Choice(), seeds=1)
  run = RunStore(tmp_path).run(Job(stub.PRETRAINING, 0))
  run.folder.mkdir(parents=True)
  with files.locked(run.folder / "lock"):
    assert execution.in_use(run.folder)

    def ended(seconds):
      config = stub.recipes.resolve(run.recipe, run.overrides)
      stub.finish(run.folder, config, 0.5)
      monkeypatch.setattr(execution, "in_use", lambda folder: False)

    monkeypatch.setattr(execution.time, "sleep", ended)
    assert execution.call(run, runs.Children()) == ""
  assert ran.called == []
  stub.done(tmp_path, some)
  assert len(ran.called) == 1


def test_a_run_of_another_command_that_was_first_and_has_ended_is_no_failure(tmp_path):
  """It had the lock when this command's process began, and no more when that was refused."""
  run = RunStore(tmp_path).run(Job(stub.PRETRAINING, 0))
  children = runs.Children()

  def refused(*_):
    stub.finish(run.folder, stub.recipes.resolve(run.recipe, run.overrides), 0.5)
    return console.WRONG_USAGE

  children.call = refused
  assert execution.call(run, children) == ""


def test_a_run_that_is_refused_after_its_result_is_not_started_for_ever(tmp_path):
  """Its checkpoint, which another run starts from, is gone."""
  run = RunStore(tmp_path).run(Job(stub.PRETRAINING, 0))
  stub.finish(run.folder, stub.recipes.resolve(run.recipe, run.overrides), 0.5)
  statuses = [console.WRONG_USAGE]
  children = runs.Children()
  children.call = lambda *_: statuses.pop()
  assert "failed with exit status 2" in execution.call(run, children)


def test_a_signal_stops_the_study_and_the_next_start_goes_on(tmp_path, monkeypatch, capfd):
  ran, some = stub.Runs(monkeypatch), stub.study(0.0)
  plain = ran._call

  def call(*args):
    if len(ran.called) == 2:
      os.kill(os.getpid(), signal.SIGTERM)
      return console.STOPPED
    return plain(*args)

  ran._call = call
  before = signal.getsignal(signal.SIGTERM)
  with pytest.raises(Stopped, match="start the same command again"):
    stub.done(tmp_path, some)
  assert signal.getsignal(signal.SIGTERM) == before
  assert len(ran.called) < 7
  said = capfd.readouterr().err
  assert (said.count("Done: "), said.count("Stopped: ")) == (2, 1)
  ran._call = plain
  assert stub.done(tmp_path, some)[0] == []
  assert len(ran.called) == 7


def test_a_disk_that_is_full_is_one_sentence(tmp_path, monkeypatch):
  stub.Runs(monkeypatch)
  stub.done(tmp_path, stub.study(0.0))
  before = (tmp_path / "results.csv").read_bytes()

  def full(*args):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(os, "fsync", full)
  with pytest.raises(RunError, match=r"cannot be written to .*No space left.*Make room there"):
    stub.done(tmp_path, stub.study(0.0))
  assert (tmp_path / "results.csv").read_bytes() == before
  monkeypatch.setattr(execution.files, "log", full)
  with pytest.raises(RunError, match="cannot be written to"):
    execution.call(RunStore(tmp_path).run(Job(stub.PRETRAINING, 7)), runs.Children())
