"""Studies whose runs train nothing: they write the files of a finished run, with any score."""

import json

from vit_jax import config as c
from vit_jax import recipes
from vit_jax.extras.experiments import runs
from vit_jax.extras.experiments.studies import Cell, Choice, Drawing, Stage, Study
from vit_jax.extras.experiments.studies.jobs import Cost, of_study
from vit_jax.extras.experiments.studies.runner import StudyRunner
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

DIGITS = "configs/vit_digits.py"
STEPS = {"duration.steps": 10, "schedule.warmup.steps": 2}
RATES = tuple({"schedule.learning_rate": rate} for rate in (1e-3, 3e-3, 1e-2))
HELD_OUT = {"evaluate.test.split": "train"}  # a stand-in for a part of it
CHOSEN = Choice(RATES, HELD_OUT)
EVALUATE = "--mode=evaluate"
PRETRAINING = Stage(DIGITS, STEPS, name="pretraining")


def cell(dropout, choice):
  """A fine-tuning after the shared pre-training."""
  settings = STEPS | {"model.dropout": dropout}
  stage = Stage(DIGITS, settings, name="tuning", after=PRETRAINING, choice=choice)
  return Cell(f"dropout {dropout}", stage, {"dropout": dropout})


def study(*dropouts, choice=CHOSEN, seeds=2, **parts):
  """A study of some dropout rates."""
  cells = tuple(cell(dropout, choice) for dropout in dropouts)
  return Study(cells, Drawing(x="dropout"), seeds=seeds, **parts)


class Runs:
  """Takes the place of processes.

  Attributes:
    called: the configs of the runs, in order.
    commands: their commands.
    fails: tells whether a run with this config fails.
    score: gives the accuracy of a run with this config, or {set: accuracy}.
  """

  def __init__(self, monkeypatch, fails=lambda config: False, score=None):
    self.called, self.commands, self.fails, self.score = [], [], fails, score or score_of
    monkeypatch.setattr(runs.Children, "call", lambda children, *args: self._call(*args))

  def _call(self, command, output):
    config, folder = config_of(command), folder_of(command)
    self.called.append(config)
    self.commands.append(command)
    output.write(b"It said something.\n")
    if self.fails(config):
      output.write(b"vit_jax: It failed.\n")
      return 1
    if EVALUATE in command:
      files.make_folder(folder)
      metrics = json.dumps({"test/top1": self.score(config)})
      files.write_text(folder / "evaluation.json", metrics)  # whole: others look for it meanwhile
    else:
      finish(folder, config, self.score(config))
    return 0


def config_of(command):
  """The config of a command for a run."""
  recipe, flags = command[3].removeprefix("--config="), command[5:]
  return recipes.resolve(recipe, [flag for flag in flags if flag.startswith("--config.")])


def folder_of(command):
  return path_of(command[4].removeprefix("--workdir="))


def score_of(config):
  """Best at a learning rate of 0.003; differs by seed and dropout."""
  distance = abs(config.schedule.learning_rate - 3e-3)
  return 0.5 + config.seed / 100 + config.model.dropout / 10 - distance


def finish(folder, config, top1):
  """Writes what a finished run leaves behind; `top1` may be {set: accuracy}."""
  sets = top1 if isinstance(top1, dict) else {"test": top1}
  step = config.duration.steps
  files.make_folder(folder / "checkpoints" / str(step))
  files.write_text(folder / "checkpoints" / str(step) / "manifest.json", "{}")
  files.write_text(folder / "config.json", json.dumps(c.to_dict(config)))  # whole, as above
  seen = {"data/images": step * config.batch_size, "data/epoch": 1.0}
  lines = [
    {"step": step, "loss": 1.0, "step_seconds": 0.5} | seen,
    {"step": step, "test/loss": 1.0} | {f"{name}/top1": value for name, value in sets.items()},
  ]
  files.write_text(folder / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def runner(folder, some, overrides=()):
  """A study in a folder."""
  return StudyRunner(some, RunStore(folder, tuple(overrides)), "vit-jax study")


def costs(some):
  """Costs of all jobs, made up."""
  return {repr(one): Cost(10, 64, 1e15) for job in of_study(some) for one in job.variants()}


def done(folder, some, *, jobs=1, only=None, overrides=()):
  """Does a study; returns (what failed, lines of the table)."""
  study = runner(folder, some, overrides)
  failed = study.run(study.asked_jobs(only), costs(some), jobs=jobs)
  return failed, study.results(costs(some))


def named(configs):
  """What tells the runs of these studies apart."""
  return [
    (one.model.dropout, one.schedule.learning_rate, one.seed, one.evaluate["test"].split)
    for one in configs
  ]
