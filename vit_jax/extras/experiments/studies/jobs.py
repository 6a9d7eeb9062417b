"""The runs that a study needs, in order, before anything is known of their results."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax.extras.experiments.studies.study import Cell, Choice, Score, Stage, Study

FIRST = 0  # the seed that chooses settings
Option = Mapping[str, Any]  # a candidate: {setting: value}


@dataclasses.dataclass(frozen=True)
class Cost:
  """The cost of one run.

  Attributes:
    steps: its length; None if it depends on missing data.
    batch_size: images a step.
    flops: FLOPs to train the whole model on one image.
    seconds: seconds to compile and train on these devices; None if not measured.
    trains_all: whether no parameters are frozen; with frozen ones a run takes less than `flops`.
  """

  steps: int | None
  batch_size: int
  flops: float
  seconds: float | None = None
  trains_all: bool = True

  def exaflops(self, steps: int) -> float | None:
    """The exaFLOPs of a number of steps; None: unknown, since parameters are frozen."""
    return self.work(steps) if self.trains_all else None

  def work(self, steps: int) -> float:
    """The exaFLOPs of a number of steps if all parameters were trained."""
    return steps * self.batch_size * self.flops / 1e18


@dataclasses.dataclass(frozen=True)
class Trial:
  """The purpose of a trial run: a candidate, and how it is scored."""

  option: Option
  score: Score


@dataclasses.dataclass(frozen=True)
class Job:
  """One run: a stage with a seed.

  Attributes:
    stage: the stage to run.
    seed: its seed.
    trial: the candidate that `stage` tries; None if it is not a trial.
  """

  stage: Stage
  seed: int
  trial: Trial | None = None

  def before(self) -> "Job | None":
    """The job whose weights this one starts from."""
    if self.stage.after is None:
      return None
    return Job(self.stage.after, self.seed)

  def wave(self) -> int:
    """The number of runs that must end, one after the other, before this one can start."""
    number = int(self.stage.has_trials())
    if before := self.before():
      number += before.wave() + 1
    return number

  def in_words(self) -> str:
    """For messages."""
    words = f"{self.stage.name}, seed {self.seed}"
    if self.trial is None:
      return words
    option = ", ".join(f"{key}={value}" for key, value in self.trial.option.items())
    return f"{words}, trial of {option}"

  def with_option(self, option: Option) -> "Job":
    """This job with a candidate in place of the choice, if its stage has one."""
    if not self.stage.has_trials():
      return self
    stage = dataclasses.replace(self.stage, choice=Choice((option,)))
    return dataclasses.replace(self, stage=stage)

  def variants(self) -> list["Job"]:
    """This job, and the same with each candidate of its stage."""
    if not self.stage.has_trials():
      return [self]
    return [self, *map(self.with_option, self.stage.choice.options)]


def trials(stage: Stage, option: Option) -> list[Job]:
  """The trials of a candidate; [] if it is the only one."""
  if not stage.has_trials():
    return []
  trial = Trial(option, stage.choice.score)
  return [Job(tried, FIRST, trial) for tried in stage.trials(option)]


def trials_of_all(stage: Stage) -> list[Job]:
  """The trials of all candidates."""
  return [job for option in stage.choice.options for job in trials(stage, option)]


def of_stage(stage: Stage, seed: int) -> list[Job]:
  """All jobs that a stage with a seed needs, and its own last."""
  before = _before(stage, seed)
  if stage.has_trials():
    before = [*_before(stage, FIRST), *trials_of_all(stage), *before]
  return distinct([*before, Job(stage, seed)])


def _before(stage: Stage, seed: int) -> list[Job]:
  """All jobs up to the stage whose weights this one starts from."""
  if stage.after is None:
    return []
  return of_stage(stage.after, seed)


def of_cell(cell: Cell, seeds: int) -> list[Job]:
  """All jobs of a cell."""
  return distinct([job for seed in range(seeds) for job in of_stage(cell.stage, seed)])


def of_study(study: Study) -> list[Job]:
  """All jobs of a study, each once; a job stands after those that it needs."""
  return distinct([job for cell in study.cells for job in of_cell(cell, study.seeds)])


def waves(jobs: list[Job]) -> list[list[Job]]:
  """The jobs by wave: those of a wave need none of the same wave."""
  by_wave = {}
  for job in jobs:
    by_wave.setdefault(job.wave(), []).append(job)
  return [by_wave[number] for number in sorted(by_wave)]


def total(values: list[float | None]) -> float | None:
  """The sum; None if a value is not known."""
  if None in values:
    return None
  return sum(values)


def distinct(jobs: list[Job]) -> list[Job]:
  """The jobs without repetitions, in order. Settings are mappings, which have no hash."""
  return list({repr(job): job for job in jobs}.values())
