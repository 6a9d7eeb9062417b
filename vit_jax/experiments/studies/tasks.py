"""The runs that a study needs, in order, before anything is known of their results."""

import dataclasses

from vit_jax.experiments.studies.study import Cell, Stage, Study

FIRST = 0  # the seed that chooses settings


@dataclasses.dataclass(frozen=True)
class Task:
  """One run: a stage with a seed.

  Attributes:
    stage: what is run.
    seed: its seed.
    trial: number of the candidate that is tried; None: the chosen candidate is used.
  """

  stage: Stage
  seed: int
  trial: int | None = None

  def before(self) -> "Task | None":
    """The task whose weights this one starts from."""
    return Task(self.stage.after, self.seed) if self.stage.after else None

  def wave(self) -> int:
    """The number of runs that must end, one after the other, before this one can start."""
    before = self.before()
    start = before.wave() + 1 if before else 0
    return start + (self.trial is None and self.stage.has_trials())

  def in_words(self) -> str:
    """For messages."""
    words = f"{self.stage.name}, seed {self.seed}"
    if self.trial is None:
      return words
    option = self.stage.choice.options[self.trial]
    return f"{words}, trial of {', '.join(f'{key}={value}' for key, value in option.items())}"


def trials(stage: Stage) -> list[Task]:
  """The trials that choose the settings of a stage; [] if it has one candidate."""
  numbers = range(len(stage.choice.options)) if stage.has_trials() else ()
  return [Task(stage, FIRST, number) for number in numbers]


def of_stage(stage: Stage, seed: int) -> list[Task]:
  """All tasks that a stage with a seed needs, and its own last."""
  before = [] if stage.after is None else of_stage(stage.after, seed)
  if stage.has_trials():
    first = [] if stage.after is None else of_stage(stage.after, FIRST)
    before = [*first, *trials(stage), *before]
  return distinct([*before, Task(stage, seed)])


def of_cell(cell: Cell, seeds: int) -> list[Task]:
  """All tasks of a cell."""
  return distinct([task for seed in range(seeds) for task in of_stage(cell.stage, seed)])


def of_study(study: Study) -> list[Task]:
  """All tasks of a study, each once; a task stands after those that it needs."""
  return distinct([task for cell in study.cells for task in of_cell(cell, study.seeds)])


def waves(tasks: list[Task]) -> list[list[Task]]:
  """The tasks by wave: those of a wave need none of the same wave."""
  found = {}
  for task in tasks:
    found.setdefault(task.wave(), []).append(task)
  return [found[number] for number in sorted(found)]


def distinct(tasks: list[Task]) -> list[Task]:
  """The tasks without repetitions, in order. Settings are mappings, which have no hash."""
  return list({repr(task): task for task in tasks}.values())
