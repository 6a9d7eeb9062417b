"""The program around a sweep: command lines, scripts for clusters, exit status, one real run."""

import dataclasses
import json
import os
import shlex
import subprocess
import sys

import pytest

from tests import programs
from tools import sweep as tool
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import runs, slurm, sweep
from vit_jax.recipes import TASKS

PAIR = ["--development=configs/mine.py:part", "--final=configs/mine.py"]


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(arguments))


@pytest.mark.parametrize("task", TASKS)
def test_a_task_of_the_paper(task):
  found = asked("--model=ViT-B/16", "--task", task, "--init_from", "B 16.npz", "--config.a=b")
  assert found.final == f"configs/finetune.py:ViT-B/16,{task}"
  assert found.development == f"{found.final},development"
  assert found.learning_rates == TASKS[task].learning_rates
  assert found.seeds == 3
  assert str(found.folder) == f"workdirs/sweep-finetune-ViT-B_16,{task}"
  assert found.overrides == ("--config.a=b", "--config.init_from=B 16.npz")


def test_real_and_the_hyperrule():
  found = asked("--model=R50x1", "--task=imagenet", "--real", "--hyperrule")
  assert found.development == "configs/finetune.py:R50x1,imagenet,development"
  assert found.final == "configs/finetune.py:R50x1,imagenet,real"
  hyperrule = "configs/hyperrule.py:R50x1,imagenet"
  assert found.rule == (f"{hyperrule},development", f"{hyperrule},real")
  plain = asked("--model=R50x1", "--task=pets", "--hyperrule")
  assert plain.rule[1] == "configs/hyperrule.py:R50x1,pets"
  for recipe in (found.final, *found.rule):
    recipes.load(recipe)


def test_a_pair_of_recipes():
  found = asked(*PAIR, "--learning-rates=0.1, 0.3", "--seeds=5", "--workdir=there")
  assert (found.development, found.final) == ("configs/mine.py:part", "configs/mine.py")
  assert (found.learning_rates, found.seeds, str(found.folder)) == ((0.1, 0.3), 5, "there")


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ([], "Give either --model and --task, or --development and --final"),
    (["--model=ViT-B/16"], "Give either"),
    (["--model=ViT-B/16", "--task=pets", *PAIR], "Give either"),
    (PAIR[1:], "Give either .* a recipe that holds back a part of the training set"),
    (PAIR, "--learning-rates is missing"),
    ([*PAIR, "--real"], "--real goes with --model and --task=imagenet"),
    ([*PAIR, "--learning-rates=1", "--hyperrule"], "--hyperrule goes with --model and --task"),
    (["--model=R50x1", "--task=pets", "--hyperrule", "--slurm=x"], "and not with --slurm"),
    ([*PAIR, "--learning-rates="], "is empty"),
    ([*PAIR, "--learning-rates=-1"], "no number above 0"),
  ],
)
def test_wrong_command_lines(arguments, message):
  with pytest.raises(c.ConfigError, match=message):
    asked(*arguments)


def done(run, top1):
  run.folder.mkdir(parents=True)
  config = c.to_dict(c.Config(batch_size=10, duration=c.Duration(steps=5)))
  (run.folder / "config.json").write_text(json.dumps(config))
  lines = [{"step": 5, "data/epoch": 1.0}, {"step": 5, "a/top1": top1}]
  (run.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def some(tmp_path):
  return asked(*PAIR, "--learning-rates=0.1,0.3", "--seeds=2", f"--workdir={tmp_path / 's'}")


def test_only_one_run(some):
  assert sweep.picked(some, "development:1") == sweep.grid(some)[1]
  with pytest.raises(c.ConfigError, match=r"rates 0\.1, 0\.3 are not done"):
    sweep.picked(some, "final:0")
  for run, top1 in zip(sweep.grid(some), (0.25, 0.5), strict=True):
    done(run, top1)
  assert sweep.picked(some, "final:1") == sweep.finals(some, 0.3)[1]


@pytest.mark.parametrize("only", ["final:2", "development:2", "test:0", "final", "final:-1", ":"])
def test_only_a_run_that_there_is(some, only):
  with pytest.raises(
    c.ConfigError, match="there are development:0 to development:1 and final:0 to"
  ):
    sweep.picked(some, only)


def test_commands_of_the_runs_that_can_start(some):
  grid = sweep.grid(some)
  assert sweep.startable(some) == grid
  done(grid[0], 0.5)
  assert sweep.startable(some) == grid[1:]
  done(grid[1], 0.25)
  finals = sweep.finals(some, 0.1)
  assert sweep.startable(some) == finals
  done(finals[1], 0.5)
  assert sweep.startable(some) == finals[:1]


SBATCH = """#!/bin/bash
printf '%s\\0' "$@" >> "$LOG"
printf 'end\\0' >> "$LOG"
echo "$(grep -zcx end "$LOG")00;cluster"
"""


def test_a_script_for_slurm(some, tmp_path):
  """Runs the script with a scheduler that only records its arguments."""
  script, sbatch, log = (tmp_path / name for name in ("it's.sh", "sbatch", "log"))
  some = dataclasses.replace(some, overrides=("--config.init_from=it's here.npz",))
  script.write_text(slurm.script(some, script, programs.ROOT / "tools" / "sweep.py"))
  sbatch.write_text(SBATCH)
  sbatch.chmod(0o755)
  environment = os.environ | dict(PATH=f"{tmp_path}:{os.environ['PATH']}", LOG=str(log))
  subprocess.run(["bash", script, "--gres=gpu:1"], env=environment, check=True)
  calls = [call.split("\0")[:-1] for call in log.read_text().split("end\0")[:-1]]
  grid, final, report = ([part for part in call if part != "--parsable"] for call in calls)

  assert grid[:3] == ["--job-name=sweep-grid", "--array=0-1", "--gres=gpu:1"]
  assert final[:3] == ["--job-name=sweep-final", "--array=0-1", "--gres=gpu:1"]
  assert final[3] == "--dependency=afterok:100"
  assert report[:3] == ["--job-name=sweep-report", "--gres=gpu:1", "--dependency=afterok:200"]
  for call, only in (grid, "development:1"), (final, "final:1"), (report, None):
    wrapped = call[-1].removeprefix("--wrap=")
    words = shlex.split(wrapped.replace("$SLURM_ARRAY_TASK_ID", "1"))
    assert words[:2] == [sys.executable, str(programs.ROOT / "tools" / "sweep.py")]
    args, overrides = tool.flags().parse_with_settings(words[2:])
    assert args.only == only
    assert tool.asked(args, overrides) == some


def test_a_script_that_cannot_be_written(some, tmp_path, monkeypatch):
  monkeypatch.setattr(sweep, "check", lambda some: None)
  monkeypatch.setattr(tool.runs, "apart", lambda check, some: check(some))
  args = tool.flags().parse_args([f"--slurm={tmp_path}/nowhere/x.sh"])
  with pytest.raises(c.ConfigError, match=r"--slurm=.*x\.sh cannot be written: No such file"):
    tool.run(some, args)


RECIPE = """
from vit_jax.config import *

def get_config(part):
  train, scored = {"part": ("[:60%]", "[60%:80%]"), "all": ("[:80%]", "[80%:]")}[part]
  return to_config_dict(Config(
    batch_size=2, duration=Duration(steps=1), optimizer=Optimizer(kind="sgd"),
    model=Model(name="ViT-Ti/16", depth=1, width=16, mlp_dim=32, heads=2, num_classes=2),
    data=Data(train=Dataset("folder:FOLDER", train), image_size=16,
              evaluate={part: Dataset("folder:FOLDER", scored)})))
"""


def test_one_real_run_and_the_commands_that_follow(tmp_path):
  """A run of the grid; the report of a sweep that is done; a run that fails."""
  from PIL import Image

  for name, colour in (("dark", 10), ("light", 200)):
    (tmp_path / "images" / name).mkdir(parents=True)
    for index in range(5):
      Image.new("RGB", (16, 16), (colour,) * 3).save(tmp_path / "images" / name / f"{index}.png")
  recipe = tmp_path / "mine.py"
  recipe.write_text(RECIPE.replace("FOLDER", str(tmp_path / "images")))
  arguments = [f"--development={recipe}:part", f"--final={recipe}:all", "--seeds=1"]
  arguments += ["--learning-rates=0.25", f"--workdir={tmp_path / 's'}"]
  some = asked(*arguments)
  program = [sys.executable, "tools/sweep.py", *arguments]

  first = programs.run([*program, "--only=development:0"])
  assert first.returncode == 0, first.stderr
  (run,) = sweep.grid(some)
  assert f"Run 1 of 1, development, learning rate 0.25: {run.command()}" in first.stderr
  assert runs.result(run.folder)["part/top1"] in (0.0, 0.5, 1.0)
  done(sweep.finals(some, 0.25)[0], 0.5)
  last = programs.run([*program, "--format=json"])
  assert last.returncode == 0, last.stderr
  assert json.loads(last.stdout) == sweep.report(some)
  assert "Run 1 of 1, development, learning rate 0.25: done" in last.stderr
  assert {"sweep.csv", "sweep.png"} < {path.name for path in some.folder.iterdir()}
