"""What is recorded of a run is true, however it was stopped, changed, copied and started again."""

import pathlib
import shutil

import pytest

from tests import programs
from vit_jax.config import recorded
from vit_jax.extras.report import run as report
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.storage import workdir as workdirs

# With a constant rate, runs of any length are one program.
SHORT = ("--config.evaluate_every.steps=10", "--config.schedule.decay=constant")


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


def records(workdir):
  """All that is recorded of what a run is."""
  names = ("config.json", workdirs.STARTS, "metrics.jsonl", "parameters.txt")
  return {name: (workdir / name).read_bytes() for name in names}


def test_a_run_without_a_step_left_prints_its_score_or_refuses_and_records_nothing(ten):
  before = records(ten)
  output = done(digits(ten, steps(10)))
  assert "nothing to train: it already has 10 steps" in output
  assert "Result:     test: top-1" in output
  assert "Done: 10 steps" in output
  assert "compiling" not in output
  result = digits(ten, steps(10), "--config.schedule.learning_rate=0.5")
  assert (result.returncode, result.stdout) == (2, "")
  assert f"{ten} has " in programs.message(result)
  assert records(ten) == before


def test_a_copy_with_an_edited_recipe_goes_on_as_a_run_of_its_own(ten, tmp_path):
  before, workdir = records(ten), tmp_path / "run"
  shutil.copytree(ten, workdir, ignore=shutil.ignore_patterns("lock"))
  text = pathlib.Path(programs.ROOT / "configs/vit_digits.py").read_text()
  recipe = tmp_path / "mine.py"
  recipe.write_text(text.replace("weight_decay=0.1", "weight_decay=0.2"))
  change = "config.optimizer.weight_decay: 0.1 -> 0.2"
  result = digits(workdir, steps(10), recipe=str(recipe))
  assert result.returncode == 2
  assert change in programs.message(result)
  output = done(digits(workdir, steps(20), recipe=str(recipe)))
  assert f"Other settings than up to step 10: config.duration.steps: 10 -> 20; {change}\n" in output
  assert report.read_run(workdir, "").changes() == [
    (10, ["config.duration.steps: 10 -> 20", change])
  ]
  assert recorded.read_config(workdir).optimizer.weight_decay == 0.2
  assert [start["steps"] for start in workdirs.read_starts(workdir)] == [10, 20]
  assert checkpoint.available(workdir)[-1] == metrics_log.read_lines(workdir)[-1]["step"] == 20
  assert records(ten) == before


def test_weights_that_a_run_started_from_stay_in_its_records(ten, tmp_path):
  workdir, init = tmp_path / "run", f"--config.init_from={ten}"
  data = ("--config.data.train.subset=1000",)
  done(digits(workdir, steps(10), init, *data))
  done(digits(workdir, steps(20), f"--config.init_from={ten}/.", *data))
  assert recorded.read_config(workdir).init_from == str(ten)
  for start in workdirs.read_starts(workdir):
    assert start["trained_on_before"] == ["digits train"]
  scored = [*programs.MAIN, "--mode=evaluate", f"--workdir={workdir}"]
  result = programs.run([*scored, "--config.evaluate.test.split=train"])
  assert result.returncode == 2
  assert "their teacher were trained on (digits train)" in programs.message(result)


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
