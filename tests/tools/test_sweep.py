"""The program around a sweep: command lines, order of the runs, scripts for clusters, failures."""

import json
import pathlib

import pytest
from PIL import Image

from tools import sweep as tool
from vit_jax import config as c
from vit_jax import recipes
from vit_jax.experiments import runs
from vit_jax.experiments.studies import step_time, transfer
from vit_jax.recipes import TASKS

PAIR = ["--development=configs/mine.py:part", "--final=configs/mine.py"]


def asked(*arguments):
  return tool.asked(*tool.flags().parse_with_settings(arguments))


@pytest.mark.parametrize("task", TASKS)
def test_a_task_of_the_paper(task):
  found = asked("--model=ViT-B/16", "--task", task, "--source", "B 16.npz", "--config.a=b")
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
  assert found.rule == transfer.hyperrule("imagenet")
  for recipe in (found.development, found.final):
    recipes.load(recipe)


def test_a_pair_of_recipes():
  found = asked(*PAIR, "--learning-rates=0.1, 0.3", "--seeds=5", "--workdir=there")
  assert (found.development, found.final) == ("configs/mine.py:part", "configs/mine.py")
  assert (found.learning_rates, found.seeds, str(found.folder)) == ((0.1, 0.3), 5, "there")


RECIPE = """
from vit_jax.config import *
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.evaluation.classification import Classification

def get_config(part):
  train, scored = {"part": ("[:60%]", "[60%:80%]"), "all": ("[:80%]", "[80%:]")}[part]
  return to_config_dict(Config(
    batch_size=2, duration=Duration(steps=1), optimizer=SGD(),
    model=Model(name="ViT-Ti/16", depth=1, width=16, mlp_dim=32, heads=2, num_classes=2),
    data=Data(train=Dataset("folder:FOLDER", train), image_size=16),
    evaluate={part: Classification("folder:FOLDER", scored)}))
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
  """The flags of a sweep over folders of images, whose checks and runs stay in this process."""
  for name, colour in (("dark", 10), ("light", 200)):
    (tmp_path / "images" / name).mkdir(parents=True)
    for index in range(5):
      Image.new("RGB", (16, 16), (colour,) * 3).save(tmp_path / "images" / name / f"{index}.png")
  recipe = tmp_path / "mine.py"
  recipe.write_text(RECIPE.replace("FOLDER", str(tmp_path / "images")))
  monkeypatch.setattr(runs, "in_new_process", lambda function, **options: function(**options))
  flags = [f"--development={recipe}:part", f"--final={recipe}:all", "--seeds=2"]
  return [*flags, "--learning-rates=0.25,0.125", f"--workdir={tmp_path / 's'}"]


class Runs:
  """Takes the place of processes: notes (part, learning rate, seed), and leaves a finished run."""

  def __init__(self, monkeypatch, fails=()):
    self.called = []
    monkeypatch.setattr(runs.Children, "call", lambda children, *args: self.call(*args))
    self.fails = fails

  def call(self, command, output):
    part = command[3].rpartition(":")[2]
    config = recipes.resolve(command[3].removeprefix("--config="), command[5:])
    one = (part, config.schedule.learning_rate, config.seed)
    self.called.append(one)
    if one in self.fails:
      output.write(b"vit_jax: It failed.\n")
      return 1
    folder = pathlib.Path(command[4].removeprefix("--workdir="))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(c.to_dict(config)))
    lines = [{"step": 1, "data/epoch": 0.5}, {"step": 1, f"{part}/top1": config.seed / 4 + 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0


def test_a_sweep_from_its_command_to_its_results(mine, tmp_path, monkeypatch, capsys):
  ran = Runs(monkeypatch)
  tool.main([*mine, "--commands"])
  commands = capsys.readouterr().out.splitlines()
  assert [command.split()[:3] for command in commands] == [["python", "-m", "vit_jax.main"]] * 2
  assert ["rate=0.125" in command for command in commands] == [True, False]
  tool.main([*mine, "--only=0:1"])
  assert ran.called == [("part", 0.25, 0)]
  tool.main([*mine, "--format=json"])
  assert ran.called[1:] == [("part", 0.125, 0), ("all", 0.125, 0), ("all", 0.125, 1)]
  found = json.loads(capsys.readouterr().out)
  assert (found["learning_rate"], found["mean"]) == (0.125, 0.625)
  assert {"sweep.csv", "sweep.png"} < {path.name for path in (tmp_path / "s").iterdir()}
  tool.main([*mine, "--commands"])
  assert capsys.readouterr().out == ""
  tool.main([*mine, "--seeds=3", "--learning-rates=0.5,0.25,0.125"])  # more of both
  assert ran.called[4:] == [("part", 0.5, 0), ("all", 0.125, 2)]


def test_a_plan_starts_nothing(mine, tmp_path, monkeypatch, capsys):
  ran = Runs(monkeypatch)
  monkeypatch.setattr(step_time, "measured_speed", lambda *_: step_time.Speed(6.0, 1.0, 1.0))
  tool.main([*mine, "--plan"])
  lines = capsys.readouterr().out.splitlines()
  assert lines[0].split()[-2:] == ["time", "here"]
  assert lines[2].split()[:6] == ["all,", "shared", "runs", "once", "4", "4"]  # runs, steps
  assert not ran.called
  assert not (tmp_path / "s").exists()


def test_the_script_for_slurm_begins_the_same_sweep(mine, tmp_path, capsys):
  words = ["--jobs=3", "--source=it's here.npz", "--config.batch_size=4"]
  args, overrides = tool.flags().parse_with_settings([*mine, *words])
  command = tool.command(args, overrides)
  again = tool.asked(*tool.flags().parse_with_settings(command[2:]))
  assert again == tool.asked(args, overrides)
  tool.main([*mine, f"--slurm={tmp_path}/x.sh"])
  text = (tmp_path / "x.sh").read_text()
  assert text.count("--array=0-1") == 2
  assert f"--final={tmp_path}/mine.py:all" in text
  with pytest.raises(SystemExit) as caught:
    tool.main([*mine, f"--slurm={tmp_path}/nowhere/x.sh"])
  assert caught.value.code == 2
  assert "nowhere/x.sh cannot be written: No such file" in capsys.readouterr().err
