"""What is known of the runs of a study: which are done, what they scored, and what they chose.

The workdirs are the only memory. The name of a workdir has a sum of all settings of its run, so
equal runs share one, and a changed run gets a new one.
"""

import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from vit_jax import config as cfg
from vit_jax import recipes
from vit_jax.config.changes import changes
from vit_jax.experiments.runs import Run
from vit_jax.experiments.studies import content, jobs
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.study import Cell, Score, Stage, naming
from vit_jax.storage import metrics_log
from vit_jax.storage.workdir import CHECKPOINTS

Options = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Ledger:
  """The runs of a study in a folder.

  Attributes:
    folder: holds the workdirs, in `runs`.
    overrides: --config.KEY=VALUE of every run.
    choices: what was chosen, by the trials; it does not change again.
  """

  folder: pathlib.Path
  overrides: tuple[str, ...] = ()
  choices: dict[str, Options] = dataclasses.field(default_factory=dict, repr=False, compare=False)

  def run(self, job: Job) -> Run | None:
    """The run of a job; None if its settings are not chosen yet."""
    return self.run_with(job, self.chosen)

  def run_with(self, job: Job, choose: Callable[[Stage], Options | None]) -> Run | None:
    """The run of a job with the settings that `choose` gives for each stage.

    Raises:
      ConfigError: there is no such recipe, or a setting is wrong.
    """
    stage, before = job.stage, job.before()
    start = self.run_with(before, choose) if before else None
    option = choose(stage)
    if option is None or (before and not start):
      return None
    settings = {**stage.settings, **option, "seed": job.seed}
    flags = (*(f"--config.{key}={value}" for key, value in settings.items()), *self.overrides)
    sum_ = fingerprint(stage.recipe, flags, name_of(start), stage.mode, average=stage.average)
    if start:
      flags += (f"--config.init_from={start.folder}",)
    folder = self.folder / "runs" / f"{stage.name}-seed{job.seed}-{sum_}"
    return Run(job.in_words(), stage.recipe, folder, flags, stage.mode, stage.average)

  def chosen(self, stage: Stage) -> Options | None:
    """The candidate with the best score; None if not all trials are done.

    Raises:
      RunError: no candidate has a score that is a number.
    """
    if not stage.has_trials():
      return stage.choice.options[0]
    key = repr(jobs.all_trials(stage))
    if key not in self.choices:
      found = self.tried(stage)
      if None in found:
        return None
      if all(map(math.isnan, found)):
        raise cfg.RunError(
          f"Nothing can be chosen for {stage.name!r}: {stage.choice.score.metric} is not a number "
          "for any candidate. Give other candidates."
        )
      sign = 1 if stage.choice.score.better == "larger" else -1
      values = [-math.inf if math.isnan(value) else sign * value for value in found]
      self.choices[key] = stage.choice.options[values.index(max(values))]
    return self.choices[key]

  def tried(self, stage: Stage) -> list[float | None]:
    """The mean score of the trials of each candidate; None if not all of them are done."""
    score = stage.choice.score
    found = [[self.score(job, score) for job in some] for some in jobs.trials(stage)]
    return [None if None in some else statistics.fmean(some) for some in found]

  def done(self, job: Job) -> dict[str, float] | None:
    """The figures after the last step of a job's run; None if it is not done."""
    run = self.run(job)
    return run.result() if run else None

  def score(self, job: Job, score: Score) -> float | None:
    """The score of a job; None if its run is not done.

    Raises:
      RunError: the run did not write the metric.
    """
    figures = self.done(job)
    if figures is None:
      return None
    folder = self.run(job).folder
    best_of_all = score.take == "best" and job.stage.mode == "train"
    lines = metrics_log.read(folder) if best_of_all else [figures]
    values = [float(line[score.metric]) for line in lines if score.metric in line]
    if not values:
      raise cfg.RunError(
        f"{folder} has no {score.metric}; its evaluation wrote {', '.join(figures)}. Score one of "
        "these, or remove that folder to run it again."
      )
    numbers = [value for value in values if not math.isnan(value)]
    best = max if score.better == "larger" else min
    return best(numbers) if numbers else math.nan

  def saved(self, job: Job) -> bool:
    """Whether a job is done and the checkpoint of its last step is there, to start from.

    A run that was killed between its last evaluation and its last save has no such checkpoint.
    """
    figures = self.done(job)
    if figures is None:
      return False
    return (self.run(job).folder / CHECKPOINTS / str(figures["step"])).is_dir()

  def ready(self, job: Job) -> bool:
    """Whether a job can start: its settings are chosen, and the run before it is saved."""
    before = job.before()
    return self.run(job) is not None and (before is None or self.saved(before))


def first_option(stage: Stage) -> Options:
  """The candidate that stands for the chosen one before there is one."""
  return stage.choice.options[0]


def picking(stage: Stage, option: Options) -> Callable[[Stage], Options]:
  """Chooses `option` for a stage, and the first candidate for others."""
  return lambda some: option if some == stage else first_option(some)


def name_of(run: Run | None) -> str:
  """The name of the folder that a run starts from; "" without one."""
  return run.folder.name if run else ""


@functools.cache
def fingerprint(
  recipe: str, flags: tuple[str, ...], start: str, mode: str, *, average: bool
) -> str:
  """A sum of what a run computes.

  It is of the settings that differ from the defaults, so that a later release with more settings
  finds the runs of an earlier one. Of weights that a recipe names, their content counts.
  """
  config = recipes.resolve(recipe, flags)
  differing = changes(cfg.to_dict(cfg.Config()), cfg.to_dict(config))
  parts = [differing, start] + [mode] * (mode != "train") + ["--no-average"] * (not average)
  if config.init_from:
    parts.append(content.of_weights(config.init_from))
  return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:10]


def signature(ledger: Ledger, cell: Cell) -> list[str]:
  """The names of all that a cell computes with the first seed, for every candidate.

  It does not depend on the results of runs.

  Raises:
    ConfigError: names the cell whose recipe or settings are wrong.
  """
  names = []
  with naming(cell.label):
    for stage in cell.stage.chain():
      for option in stage.choice.options:
        names.append(name_of(ledger.run_with(Job(stage, jobs.FIRST), picking(stage, option))))
      names += [name_of(ledger.run_with(trial, first_option)) for trial in jobs.all_trials(stage)]
      if stage.has_trials():
        names.append(f"{stage.name} by {stage.choice.score}")
  return sorted(set(names))
