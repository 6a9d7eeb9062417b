"""Conducts a study: checks it, does what is missing, and writes the results."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from vit_jax import recipes
from vit_jax.config import Config, ConfigError, Duration, RunError, similar
from vit_jax.experiments import runs
from vit_jax.experiments.studies import execution, jobs, memory, paper, report, rows
from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.ledger import Ledger, first_option, picking
from vit_jax.experiments.studies.progress import Progress
from vit_jax.experiments.studies.study import EPOCH, OF_THE_STUDY, Cell, Study, naming
from vit_jax.experiments.studies.summary import CellResult


@dataclasses.dataclass(frozen=True)
class Conduct:
  """A study in a folder.

  Attributes:
    study: what is compared.
    ledger: its runs.
    command: what starts it, for the page of results, if it writes one.
  """

  study: Study
  ledger: Ledger
  command: str = ""

  def check(self):
    """Checks the settings of the command line, and the paper's figures.

    Raises:
      ConfigError: a setting is set twice, or the paper's figures cannot be read.
    """
    check_overrides(self.study, self.ledger.overrides)
    paper.figures(self.study)

  def costs(self) -> dict[str, Cost]:
    """Checks every run, and returns the costs of the jobs by their repr.

    A job whose settings are chosen has those of its first candidate, and `jobs.with_candidate`
    gives those of each.

    Raises:
      ConfigError: a cell is wrong.
    """
    from vit_jax.experiments.studies import checks

    asked = {}
    for cell in self.study.cells:
      for job in jobs.of_cell(cell, 1):
        score = self._score(cell, job)
        for one in (job, *jobs.candidates(job)):
          asked.setdefault((alike(one), score), (cell, one, score))
    found = checks.costs([self._request(*each) for each in asked.values()])
    by_task = {key: one for (key, _), one in zip(asked, found, strict=True)}
    wanted = [one for job in jobs.of_study(self.study) for one in (job, *jobs.candidates(job))]
    return {repr(job): by_task[alike(job)] for job in wanted}

  def check_data(self):
    """Opens all data, and checks that what chooses or trains is not what is scored.

    Raises:
      ConfigError: data is missing or used twice.
    """
    from vit_jax.experiments.studies import checks

    chains, choices = [], []
    for cell in self.study.cells:
      for stage in cell.stage.chain():
        for option in stage.choice.options:
          chain = self._chain(cell, stage, option)
          chains.append(chain)
          place = cell.stage.chain().index(stage)
          for trial in jobs.tries(stage, option):
            request = self._request(cell, trial, trial.trial.score)
            if stage.after:
              chains.append([*chain[:place], request])
            choices.append((request, chain[place], chain[-1]))
    checks.check_data(chains, choices)

  def _chain(self, cell, stage, option):
    """The runs of a cell with a candidate for one of its stages."""
    found = [Job(one, jobs.FIRST) for one in cell.stage.chain()]
    pick = picking(stage, option)
    return [self._request(cell, job, self._score(cell, job), pick) for job in found]

  def _request(self, cell, job, score, choose=first_option):
    from vit_jax.experiments.studies import checks

    with naming(cell.label):
      run = self.ledger.run_with(job, choose)
    return checks.Request(cell.label, run, score)

  def _score(self, cell, job):
    if job.trial:
      return job.trial.score
    return self.study.score if job.stage == cell.stage else None

  def configs(self) -> dict[str, Config]:
    """The configs of the jobs by their repr; settings that are chosen are the first candidate's."""
    from vit_jax.experiments.studies import checks

    return {
      repr(job): checks.accepted(self.ledger.run_with(job, first_option))
      for job in jobs.of_study(self.study)
    }

  def run(self, some: list[Job], costs: dict[str, Cost], *, jobs: int) -> list[str]:
    """Does jobs; returns a sentence for each run that failed."""
    said = memory.note(self.study, self.ledger)
    progress = Progress(self.ledger, some, costs)
    if said:
      progress.say(said)
    return execution.execute(self.ledger, some, jobs=jobs, progress=progress)

  def results(self, costs: dict[str, Cost]) -> list[CellResult]:
    """Writes the results of all that is done."""
    cost_of = lambda job: costs[repr(jobs.with_candidate(job, self.ledger.chosen(job.stage)))]
    found = rows.rows(self.study, self.ledger, cost_of)
    along = rows.curves(self.study, self.ledger) if self.study.drawing.x == EPOCH else []
    return report.write(self.study, self.ledger.folder, found, self.command, curves=along)

  def one(self, only: str) -> list[Job]:
    """The jobs of --only: of a cell by its label, or one run as WAVE:NUMBER.

    Raises:
      ConfigError: there is no such cell or run, or what it needs is not done.
    """
    cell = next((cell for cell in self.study.cells if cell.label == only), None)
    if cell:
      return jobs.of_cell(cell, self.study.seeds)
    waves = jobs.waves(jobs.of_study(self.study))
    wave, number = map(int, only.split(":")) if is_one_run(only) else (len(waves), 0)
    if wave >= len(waves) or number >= len(waves[wave]):
      labels = [cell.label for cell in self.study.cells]
      raise ConfigError(f"--only={only} is no cell; nearest: {similar(only, labels)}.")
    job = waves[wave][number]
    if not self.ledger.ready(job):
      raise ConfigError(
        f"--only={only} ({job.in_words()}) cannot start yet: runs of an earlier wave are not "
        "done. Do them first."
      )
    return [job]


def alike(job: Job) -> str:
  """A text that jobs of one cost share: other seeds, other names, other weights to start from."""
  stage = dataclasses.replace(job.stage, after=None, name="")
  return repr((job.stage.after is None, dataclasses.replace(job, stage=stage, seed=jobs.FIRST)))


def check_overrides(study: Study, overrides: tuple[str, ...]):
  """The command line may not set what the cells or their stages differ in.

  Raises:
    ConfigError: names the setting.
  """
  keys = [override.partition("=")[0].removeprefix("--config.") for override in overrides]
  varied, found = varied_settings(study.cells), configs(study.cells) if keys else []
  for key in keys:
    values = {repr(setting(config, key)) for config in found}
    if key in varied or key in OF_THE_STUDY or len(values) > 1:
      raise ConfigError(
        f"--config.{key} is set by the study itself, since its runs differ in it; leave it out, or "
        "change it in the file of the study."
      )


def varied_settings(cells: tuple[Cell, ...]) -> set[str]:
  """Settings of candidates, of trials, of some stages of a cell, or with more than one value."""
  stages = [stage for cell in cells for stage in cell.stage.chain()]
  choices = [option for s in stages if s.has_trials() for option in s.choice.options]
  varied = {key for one in [*choices, *(s.choice.held_out for s in stages)] for key in one}
  values = {}
  for cell in cells:
    chain = [set(stage.settings) for stage in cell.stage.chain()]
    varied |= set.union(*chain) - set.intersection(*chain)
    for depth, stage in enumerate(cell.stage.chain()):
      for key, value in stage.settings.items():
        values.setdefault((depth, stage.recipe, key), []).append(value)
  return varied | {key for (*_, key), some in values.items() if any(v != some[0] for v in some)}


def configs(cells: tuple[Cell, ...]) -> list[Config]:
  """The configs of all stages of all cells.

  Recipes are resolved, because stages may differ in the argument of a recipe alone.
  """
  found = {}
  for cell in cells:
    for stage in cell.stage.chain():
      flags = tuple(f"--config.{key}={value}" for key, value in stage.settings.items())
      found.setdefault((stage.recipe, flags), cell.label)
  return [config_of(*one, label) for one, label in found.items()]


def config_of(recipe: str, flags: tuple[str, ...], cell: str) -> Config:
  """The config of a stage before anything is chosen; an error names the cell."""
  with naming(cell):
    return recipes.resolve(recipe, flags)


def setting(config: Config, key: str) -> Any:
  """A setting, or the whole duration that it is a unit of; None if there is none."""
  node = config
  for part in key.split("."):
    node = node.get(part) if isinstance(node, Mapping) else getattr(node, part, None)
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
    more = f" {len(failed) - 1} more failed." if len(failed) > 1 else ""
    raise RunError(
      f"{failed[0]}{more} All other runs are kept: mend what failed, then start the same command "
      "again."
    )


def apart(conduct: Conduct, *, data: bool) -> dict[str, Cost]:
  """Checks a study, and returns its costs; with `data`, all data is opened and checked too.

  It runs in a process that ends, so that JAX does not stay in this one.

  Raises:
    ConfigError: the study is wrong, or data is missing.
  """
  return runs.apart(checked, conduct, data)


def checked(conduct: Conduct, data: bool) -> dict[str, Cost]:
  """As `apart`, in this process."""
  conduct.check()
  found = conduct.costs()
  if data:
    conduct.check_data()
  return found


def of_plan(conduct: Conduct, *, measure: bool) -> dict[str, Cost]:
  """As `apart` without data; with `measure`, a few steps are timed on the devices at hand."""
  return runs.apart(planned, conduct, measure)


def planned(conduct: Conduct, measure: bool) -> dict[str, Cost]:
  """As `of_plan`, in this process."""
  found = checked(conduct, False)
  if not measure:
    return found
  from vit_jax.experiments.studies import calibration

  return calibration.measured(found, conduct.configs())
