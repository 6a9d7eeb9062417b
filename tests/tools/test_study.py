"""The program around a study: its studies, the plan, SLURM, exit status, one real study."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest

from tests import programs
from tests.extras.experiments.studies import stub
from vit_jax.config import ConfigError
from vit_jax.extras.commands import main
from vit_jax.extras.commands import study as tool
from vit_jax.extras.experiments import runs
from vit_jax.extras.experiments.studies import jobs, loading, plan, record, results

STUDIES = sorted((programs.ROOT / "configs" / "studies").glob("*.py"))

SCALED = [(path, scale) for path in STUDIES for scale in loading.functions(str(path))]


@pytest.fixture
def here(monkeypatch):
  """Runs in the repository's root, and checks in this process, which has JAX already."""
  monkeypatch.chdir(programs.ROOT)
  monkeypatch.setattr(
    runs, "in_new_process", lambda function, *a, plugins, **options: function(*a, **options)
  )


def asked(path, *overrides, scale="small", seeds=None):
  """A study of a file, in a folder that is not there."""
  study = loading.load(str(path), scale)
  study = dataclasses.replace(study, seeds=seeds or study.seeds)
  return stub.runner(pathlib.Path("/nowhere"), study, overrides)


@pytest.mark.parametrize(("path", "scale"), SCALED, ids=lambda one: getattr(one, "stem", one))
def test_every_study_has_a_plan(path, scale, here):
  found = asked(path, scale=scale)
  short = dataclasses.replace(found, study=with_fewer_runs(found.study))
  lines = plan.lines(short.study, short.checked_costs())
  assert lines[-1].runs == len(jobs.of_study(short.study))
  assert all(line.exaflops for line in lines)
  assert "device-days" in plan.estimate_table(lines)
  if found.study.paper:
    assert results.in_paper(found.study)


def with_fewer_runs(study):
  """Each first stage and each value of a factor is in a cell, with two candidates of each choice.

  The checks of all take long: a study at the paper's scale has up to 120 cells.
  """

  def short(stage):
    options = stage.choice.options
    few = options if len(options) == 1 else (options[0], options[-1])
    choice = dataclasses.replace(stage.choice, options=few)
    return dataclasses.replace(stage, choice=choice, after=stage.after and short(stage.after))

  cells = []
  seen = set()
  for cell in study.cells:
    new = {repr(cell.stage.chain()[0]), *cell.factors.items()} - seen
    if new:
      cells.append(dataclasses.replace(cell, stage=short(cell.stage)))
    seen |= new
  return dataclasses.replace(study, cells=tuple(cells))


def test_the_paper_studies_are_those_of_table_3(here):
  """A cell differs from the recipe of the paper in what it compares alone."""
  found = asked("configs/studies/positions.py", scale="paper")
  lines = plan.lines(found.study, found.checked_costs())
  assert lines[1].exaflops == pytest.approx(224, rel=0.01)  # Table 6
  assert lines[1].device_days == pytest.approx(224e18 / (61.5e12 * 0.4 * 86_400), rel=0.01)
  assert lines[1].steps == 517_822


def test_runs_that_are_shared_count_once(here, tmp_path):
  path = written(tmp_path)
  found = asked(path, seeds=2)
  lines = plan.lines(found.study, found.checked_costs())
  assert [line.runs for line in lines] == [2 * 2, 2 * 2, 2 + 2 * 2]
  assert [line.steps for line in lines] == [16, 16, 24]


def test_steps_that_depend_on_missing_data(here):
  settings = ("duration.steps=0", "duration.epochs=1", "data.train.source=folder:gone")
  found = asked("configs/studies/positions.py", *(f"--config.{one}" for one in settings))
  lines = plan.lines(found.study, found.checked_costs())
  assert {line.exaflops for line in lines} == {None}
  assert "give the data" in plan.estimate_table(lines)


def test_the_flops_of_a_part_of_the_model_are_not_known(here):
  found = asked("configs/studies/positions.py", "--config.optimizer.trainable=head/.*")
  (line, *_) = lines = plan.lines(found.study, found.checked_costs())
  assert (line.steps > 0, line.exaflops, line.device_days) == (True, None, None)
  assert "teraFLOPs are not known where only a part" in plan.estimate_table(lines)


def test_the_example_of_the_documents(here, tmp_path):
  page = (programs.ROOT / "docs" / "studies.md").read_text()
  (example,) = re.findall(r"^```python[^\n]*\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
  path = tmp_path / "example.py"
  path.write_text(example)
  found = asked(path)
  lines = plan.lines(found.study, found.checked_costs())
  assert lines[-1].runs == 3 * (2 + 3)
  with pytest.raises(ConfigError, match=r"The cell 'dropout 0.0': .*digits/train"):
    found.checked_costs(data=True)


def test_the_script_for_slurm_submits_every_run(here, tmp_path, capsys):
  """sbatch is a stand-in that notes its arguments."""
  script, path = tmp_path / "my\nexit 7; study.sh", written(tmp_path)
  tool.main([f"--study={path}", f"--workdir={tmp_path}/w", f"--slurm={script}"])
  word = f"$'{tmp_path}/my\\nexit 7; study.sh'"
  assert f"submit it with `bash {word}`.\n" in capsys.readouterr().out
  binary = tmp_path / "bin" / "sbatch"
  binary.parent.mkdir()
  binary.write_text(f'#!/bin/bash\nprintf "%s\\n" "$*" >> {tmp_path}/asked\necho 7\n')
  binary.chmod(0o755)
  env = os.environ | {"PATH": f"{binary.parent}:{os.environ['PATH']}"}
  subprocess.run(["bash", script, "--gres=gpu:1"], env=env, check=True, stdout=subprocess.DEVNULL)
  first, second, last = (tmp_path / "asked").read_text().splitlines()
  assert "--array=0-1 " in first
  assert "--array=0-3 " in second
  assert "--dependency=afterany:7" in second
  assert all("--gres=gpu:1" in line for line in (first, second, last))
  words = shlex.split(second.partition("--wrap=")[2])
  assert words[1:5] == ["-m", main.__name__, "study", f"--study={path}"]
  assert words[-1] == "--only=1:$SLURM_ARRAY_TASK_ID"
  assert "--only" not in last


def test_an_empty_only_is_no_cell(here, tmp_path, capsys):
  """As of --only=$LABEL where LABEL is not set: nothing starts."""
  with pytest.raises(SystemExit, match="2"):
    tool.main([f"--study={written(tmp_path)}", f"--workdir={tmp_path}/w", "--only="])
  assert "--only= is no cell; nearest: rate 0.001, rate 0.01." in capsys.readouterr().err
  assert not (tmp_path / "w").exists()


MINE = """
from vit_jax.extras.experiments.studies import Cell, Drawing, Stage, Study

TINY = {
  "batch_size": 32, "model.depth": 1, "model.width": 16, "model.mlp_dim": 32, "model.heads": 2,
  "duration.steps": 4, "schedule.warmup.steps": 2, "log_every.steps": 2,
  "evaluate_every.steps": 4, "checkpoint.every.steps": 4,
}
BEFORE = Stage("configs/vit_digits.py", TINY, name="pretraining")

def cell(rate):
  stage = Stage("configs/vit_digits.py", TINY | {"schedule.learning_rate": rate}, after=BEFORE)
  return Cell(f"rate {rate}", stage, {"rate": rate})

def small():
  return Study(cells=(cell(1e-3), cell(1e-2)), drawing=Drawing(x="rate", log=True), seeds=2)
"""

AGAIN = """
def again(cell):
  stage = Stage(cell.stage.recipe, TINY, name="again", after=cell.stage, mode="evaluate")
  return Cell("again", stage, {"rate": 1e-3})
"""


def written(folder):
  path = folder / "mine.py"
  path.write_text(MINE)
  return path


def test_a_real_study(here, tmp_path, monkeypatch, capsys):
  """Evaluated again, the weights of a run give the figure that the run gave; the runs are forks."""

  def call(children, command, output=None):
    done = programs.run(command)
    output.write((done.stdout + done.stderr).encode())
    return done.returncode

  monkeypatch.setattr(runs.Children, "call", call)
  path = written(tmp_path)
  path.write_text(
    MINE.replace("after=BEFORE)", ")").replace("cell(1e-2))", "again(cell(1e-3)))") + AGAIN
  )
  arguments = [f"--study={path}", f"--workdir={tmp_path}/w", "--format=json"]
  tool.main([*arguments, "--seeds=1", "--jobs=2"])
  first, second = json.loads(capsys.readouterr().out)
  assert (first["cell"], second["cell"]) == ("rate 0.001", "again")
  assert 0 < first["mean"] == second["mean"] < 1
  assert len(list((tmp_path / "w" / "runs").glob("*/metrics.jsonl"))) == 1
  for row in results.read_rows(tmp_path / "w" / "results.csv"):
    assert json.loads(row["code"]).keys() == {*record.PLACES}
  assert {path.name for path in (tmp_path / "w").iterdir()} == {
    *("runs", "results.csv", "results.md", "figure.svg", "figure.png"),
  }
