"""Runs a study: checks it, does what is missing, and writes the results."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from vit_jax import recipes
from vit_jax.config import Config, ConfigError, Duration, RunError, similar
from vit_jax.extras.experiments.studies import changes, execution, jobs, report, results
from vit_jax.extras.experiments.studies.execution import Progress
from vit_jax.extras.experiments.studies.jobs import Cost, Job
from vit_jax.extras.experiments.studies.loading import OF_THE_STUDY
from vit_jax.extras.experiments.studies.report import CellResult
from vit_jax.extras.experiments.studies.store import RunStore, first_option, picking
from vit_jax.extras.experiments.studies.study import EPOCH, Study, naming


@dataclasses.dataclass(frozen=True)
class StudyRunner:
  """A study in a folder.

  Attributes:
    study: what is compared.
    store: its runs.
    command: the command that starts it, for the page of results.
  """

  study: Study
  store: RunStore
  command: str = ""

  def checked_costs(self, *, data: bool = False, measure: bool = False) -> dict[str, Cost]:
    """Checks the study, and returns the cost of each job by its repr. Imports JAX.

    A job whose settings are still to be chosen costs as much as its first candidate;
    `Job.with_option` gives the key of each candidate's cost.

    Args:
      data: all data is opened and checked too.
      measure: a few steps are timed on these devices.

    Raises:
      ConfigError: the study is wrong, or data is missing or used twice.
    """
    check_overrides(self.study, self.store.overrides)
    results.in_paper(self.study)
    costs = self._costs()
    if data:
      self._check_data()
    if measure:
      from vit_jax.extras.experiments.studies import step_time

      costs = step_time.measured(costs, self.configs())
    return costs

  def _costs(self):
    """Checks every run; runs that differ in the seed alone are checked once."""
    from vit_jax.extras.experiments.studies import checks

    by_task = {}
    costs = {}
    for cell in self.study.cells:
      for job in jobs.of_cell(cell, self.study.seeds):
        score = self._score(cell, job)
        for variant in job.variants():
          task = task_of(variant), score
          if task not in by_task:
            by_task[task] = checks.checked_cost(self._request(cell, variant, score))
          costs[repr(variant)] = by_task[task]
    return costs

  def _check_data(self):
    """Opens all data, and checks that no scored data is used to choose or to train."""
    from vit_jax.extras.experiments.studies import checks

    chains = []
    choices = []
    for cell in self.study.cells:
      for place, stage in enumerate(cell.stage.chain()):
        for option in stage.choice.options:
          chain = self._chain(cell, picking(stage, option))
          chains.append(chain)
          for trial in jobs.trials(stage, option):
            request = self._request(cell, trial, trial.trial.score)
            if stage.after:
              chains.append([*chain[:place], request])
            choices.append((request, chain[place], chain[-1]))
    checks.check_data(chains, choices)

  def _chain(self, cell, choose):
    """The runs of a cell with one choice of settings."""
    chain = [Job(stage, jobs.FIRST) for stage in cell.stage.chain()]
    return [self._request(cell, job, self._score(cell, job), choose) for job in chain]

  def _request(self, cell, job, score, choose=first_option):
    from vit_jax.extras.experiments.studies import checks

    with naming(cell.label):
      run = self.store.run_with(job, choose)
    return checks.Request(cell.label, run, score)

  def _score(self, cell, job):
    if job.trial:
      return job.trial.score
    if job.stage == cell.stage:
      return self.study.score_of(cell)
    return None

  def configs(self) -> dict[str, Config]:
    """The configs of the jobs by their repr; choices stand at the first candidate."""
    from vit_jax.extras.experiments.studies import checks

    return {
      repr(job): checks.accepted(self.store.run_with(job, first_option))
      for job in jobs.of_study(self.study)
    }

  def run(self, some: list[Job], costs: dict[str, Cost], *, jobs: int) -> list[str]:
    """Does jobs; returns a sentence for each run that failed."""
    changed = changes.note(self.study, self.store)
    progress = Progress(self.store, some, costs)
    if changed:
      progress.say(changed)
    return execution.execute(self.store, some, jobs=jobs, progress=progress)

  def results(self, costs: dict[str, Cost]) -> list[CellResult]:
    """Writes the results of all that is done."""

    def cost_of(job):
      option = self.store.chosen(job.stage)
      return costs[repr(job.with_option(option))]

    rows = results.rows(self.study, self.store, cost_of)
    trials = results.trials(self.study, self.store)
    curves = []
    if self.study.drawing.x == EPOCH:
      curves = results.curves(self.study, self.store)
    return report.write(
      self.study, self.store.folder, rows, self.command, trials=trials, curves=curves
    )

  def asked_jobs(self, only: str | None) -> list[Job]:
    """The jobs of --only: of a cell by its label, or one run as WAVE:NUMBER; None: all jobs.

    Raises:
      ConfigError: there is no such cell or run, or runs that it needs are not done.
    """
    if only is None:
      return jobs.of_study(self.study)
    for cell in self.study.cells:
      if cell.label == only:
        return jobs.of_cell(cell, self.study.seeds)
    job = self._numbered(only)
    if job is None:
      labels = [cell.label for cell in self.study.cells]
      raise ConfigError(f"--only={only} is no cell; nearest: {similar(only, labels)}.")
    if not self.store.ready(job):
      raise ConfigError(
        f"--only={only} ({job.in_words()}) cannot start yet: runs of an earlier wave are not "
        "done. Do them first."
      )
    return [job]

  def _numbered(self, only: str) -> Job | None:
    """The job WAVE:NUMBER; None if there is none."""
    if not is_one_run(only):
      return None
    wave, number = map(int, only.split(":"))
    waves = jobs.waves(jobs.of_study(self.study))
    if wave >= len(waves) or number >= len(waves[wave]):
      return None
    return waves[wave][number]


def task_of(job: Job) -> str:
  """A key for jobs of equal cost, which may differ in seed, name and initial weights."""
  stage = dataclasses.replace(job.stage, after=None, name="")
  return repr((job.stage.after is None, dataclasses.replace(job, stage=stage, seed=jobs.FIRST)))


def check_overrides(study: Study, overrides: tuple[str, ...]):
  """Checks that the command line sets nothing in which runs of the study differ.

  Raises:
    ConfigError: names the setting.
  """
  if not overrides:
    return
  keys = [override.partition("=")[0].removeprefix("--config.") for override in overrides]
  configs = stage_configs(study)
  choices = [stage.choice for stage in study.stages() if stage.has_trials()]
  tried = {key for one in choices for settings in (one.held_out, *one.options) for key in settings}
  for key in keys:
    values = {repr(setting(config, key)) for config in configs}
    if key in tried or key in OF_THE_STUDY or len(values) > 1:
      raise ConfigError(
        f"--config.{key} is set by the study itself, since its runs differ in it; leave it out, or "
        "change it in the file of the study."
      )


def stage_configs(study: Study) -> list[Config]:
  """The configs of all stages before anything is chosen; an error names the cell."""
  configs = {}
  for cell in study.cells:
    for stage in cell.stage.chain():
      flags = tuple(f"--config.{key}={value}" for key, value in stage.settings.items())
      if (stage.recipe, flags) not in configs:
        with naming(cell.label):
          configs[stage.recipe, flags] = recipes.resolve(stage.recipe, flags)
  return list(configs.values())


def setting(config: Config, key: str) -> Any:
  """A setting, or the whole duration if `key` is one of its units; None if there is none."""
  node = config
  for name in key.split("."):
    if isinstance(node, Mapping):
      node = node.get(name)
    else:
      node = getattr(node, name, None)
    if isinstance(node, Duration):
      break
  return node


def is_one_run(only: str | None) -> bool:
  """Whether --only names a run, WAVE:NUMBER; labels of cells are never like that."""
  return re.fullmatch(r"[0-9]+:[0-9]+", only or "") is not None


def raise_failures(failed: list[str]):
  """Ends the command if runs failed.

  Raises:
    RunError: says what the first one said.
  """
  if failed:
    more = ""
    if len(failed) > 1:
      more = f" {len(failed) - 1} more failed."
    raise RunError(
      f"{failed[0]}{more} All other runs are kept: fix what failed, then start the same command "
      "again."
    )
