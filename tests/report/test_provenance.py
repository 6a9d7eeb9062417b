"""What is recorded of a run is true, however it was stopped, changed, copied and started again."""

import json
import pathlib
import shutil

import pytest

from tests import programs
from tests.ends import assert_equal_ends
from vit_jax.config import recorded
from vit_jax.report import run as report
from vit_jax.storage import checkpoint, starts

SHORT = ("--config.evaluate_every.steps=10",)


def digits(workdir, *overrides, recipe="configs/vit_digits.py"):
  command = programs.digits(workdir, *SHORT, *overrides)
  return programs.run([one.replace("configs/vit_digits.py", recipe) for one in command])


def done(result):
  assert result.returncode == 0, result.stderr
  return result.stdout


def steps(number):
  return f"--config.duration.steps={number}"


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
  """A run of ten steps."""
  workdir = tmp_path_factory.mktemp("ten")
  done(digits(workdir, steps(10)))
  return workdir


def copy(workdir, to):
  shutil.copytree(workdir, to, ignore=shutil.ignore_patterns("lock"))
  return to


def records(workdir):
  """All that is recorded of what a run is."""
  names = ("config.json", starts.STARTS, "metrics.jsonl")
  return {name: (workdir / name).read_bytes() for name in names}


def test_a_run_without_a_step_left_prints_its_score_or_refuses_and_records_nothing(ten):
  before = records(ten)
  assert "Reached: test: top-1" in done(digits(ten, steps(10)))
  for flag in ("schedule.learning_rate=0.5", "init_from=nowhere.npz", "duration.steps=5"):
    result = digits(ten, steps(10), f"--config.{flag}")
    assert (result.returncode, result.stdout) == (2, "")
    assert f"{ten} has " in programs.message(result)
  assert records(ten) == before


def test_a_recipe_that_is_edited_counts_as_the_command_line_does(ten, tmp_path):
  text = pathlib.Path(programs.ROOT / "configs/vit_digits.py").read_text()
  recipe, workdir = tmp_path / "mine.py", copy(ten, tmp_path / "run")
  recipe.write_text(text.replace("weight_decay=0.1", "weight_decay=0.2"))
  said = "config.optimizer.weight_decay: 0.1 -> 0.2"
  result = digits(workdir, steps(10), recipe=str(recipe))
  assert result.returncode == 2
  assert said in programs.message(result)
  told = done(digits(workdir, steps(20), recipe=str(recipe)))
  assert f"Other settings than up to step 10: config.duration.steps: 10 -> 20; {said}\n" in told
  by_flag = copy(ten, tmp_path / "flag")
  done(digits(by_flag, steps(20), "--config.optimizer.weight_decay=0.2"))
  assert_equal_ends(workdir, by_flag, 20)
  for one in (workdir, by_flag):
    assert report.read(one, "").changes() == [(10, ["config.duration.steps: 10 -> 20", said])]
    assert recorded.read(one).optimizer.weight_decay == 0.2


def test_a_copy_goes_on_as_a_run_of_its_own(ten, tmp_path):
  one, other = copy(ten, tmp_path / "one"), copy(ten, tmp_path / "other")
  before = records(ten)
  done(digits(one, steps(20)))
  done(digits(other, steps(30), "--config.schedule.learning_rate=0.001"))
  assert [checkpoint.available(folder)[-1] for folder in (ten, one, other)] == [10, 20, 30]
  assert records(ten) == before
  for folder, total in ((one, 20), (other, 30)):
    assert [start["steps"] for start in starts.read(folder)] == [10, total]
    assert recorded.read(folder).duration.steps == total
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["step"] == total


def test_weights_that_a_run_started_from_stay_in_its_records(ten, tmp_path):
  workdir, init = tmp_path / "run", f"--config.init_from={ten}"
  data = ("--config.data.train.subset=1000",)
  done(digits(workdir, steps(10), init, *data))
  for flags in ((), ("--config.init_from=gone.npz",)):
    result = digits(workdir, steps(20), *flags, *data)
    assert result.returncode == 2
    assert f"config.init_from: '{ten}' -> " in programs.message(result)
  done(digits(workdir, steps(20), f"--config.init_from={ten}/.", *data))
  assert recorded.read(workdir).init_from == str(ten)
  for start in starts.read(workdir):
    assert start["trained_on_before"] == ["digits train"]
  scored = [*programs.MAIN, "--mode=evaluate", f"--workdir={workdir}"]
  result = programs.run([*scored, "--config.evaluate.test.split=train"])
  assert result.returncode == 2
  assert "What the weights were trained on (digits train)" in programs.message(result)


def test_changes_of_a_start_that_came_to_nothing_are_not_told():
  facts = [
    {"step": 0, "changed": []},
    {"step": 10, "changed": ["a"]},
    {"step": 20, "changed": ["b"]},
    {"step": 10, "changed": ["c"]},
    {"step": 30},
    {"step": "x", "changed": ["d"]},
    {"step": 40, "changed": "e"},
  ]
  run = report.RecordedRun(pathlib.Path(), "", None, facts, (), (), ())
  assert run.changes() == [(10, ["c"])]
