"""The runs that a study needs, in order, before anything is known of their results."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax.experiments.studies.study import Cell, Choice, Score, Stage, Study

FIRST = 0  # the seed that chooses settings


@dataclasses.dataclass(frozen=True)
class Trial:
  """What a run is tried for: a candidate, and how it is scored."""

  option: Mapping[str, Any]
  score: Score


@dataclasses.dataclass(frozen=True)
class Job:
  """One run: a stage with a seed.

  Attributes:
    stage: what is run.
    seed: its seed.
    trial: the candidate that `stage` tries; None: it is no trial.
  """

  stage: Stage
  seed: int
  trial: Trial | None = None

  def before(self) -> "Job | None":
    """The job whose weights this one starts from."""
    return Job(self.stage.after, self.seed) if self.stage.after else None

  def wave(self) -> int:
    """The number of runs that must end, one after the other, before this one can start."""
    before = self.before()
    start = before.wave() + 1 if before else 0
    return start + self.stage.has_trials()

  def in_words(self) -> str:
    """For messages."""
    words = f"{self.stage.name}, seed {self.seed}"
    if self.trial is None:
      return words
    option = ", ".join(f"{key}={value}" for key, value in self.trial.option.items())
    return f"{words}, trial of {option}"


def trials(stage: Stage) -> list[list[Job]]:
  """The trials of each candidate for the settings of a stage; [] if it has one candidate."""
  return [tries(stage, option) for option in stage.choice.options if stage.has_trials()]


def tries(stage: Stage, option: Mapping[str, Any]) -> list[Job]:
  """The trials of one candidate; [] if it is the only one."""
  trial = Trial(option, stage.choice.score)
  return [Job(one, FIRST, trial) for one in stage.trials(option) if stage.has_trials()]


def with_candidate(job: Job, option: Mapping[str, Any]) -> Job:
  """A job whose stage has this candidate in place of its choice, if it has one."""
  if not job.stage.has_trials():
    return job
  stage = dataclasses.replace(job.stage, choice=Choice((option,)))
  return dataclasses.replace(job, stage=stage)


def candidates(job: Job) -> list[Job]:
  """A job with each of the candidates of its stage; [] if it has one."""
  return [
    with_candidate(job, option) for option in job.stage.choice.options if job.stage.has_trials()
  ]


def all_trials(stage: Stage) -> list[Job]:
  """The trials of all candidates."""
  return [job for some in trials(stage) for job in some]


def of_stage(stage: Stage, seed: int) -> list[Job]:
  """All jobs that a stage with a seed needs, and its own last."""
  before = [] if stage.after is None else of_stage(stage.after, seed)
  if stage.has_trials():
    first = [] if stage.after is None else of_stage(stage.after, FIRST)
    before = [*first, *all_trials(stage), *before]
  return distinct([*before, Job(stage, seed)])


def of_cell(cell: Cell, seeds: int) -> list[Job]:
  """All jobs of a cell."""
  return distinct([job for seed in range(seeds) for job in of_stage(cell.stage, seed)])


def of_study(study: Study) -> list[Job]:
  """All jobs of a study, each once; a job stands after those that it needs."""
  return distinct([job for cell in study.cells for job in of_cell(cell, study.seeds)])


def waves(jobs: list[Job]) -> list[list[Job]]:
  """The jobs by wave: those of a wave need none of the same wave."""
  found = {}
  for job in jobs:
    found.setdefault(job.wave(), []).append(job)
  return [found[number] for number in sorted(found)]


def distinct(jobs: list[Job]) -> list[Job]:
  """The jobs without repetitions, in order. Settings are mappings, which have no hash."""
  return list({repr(job): job for job in jobs}.values())
