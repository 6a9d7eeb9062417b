"""The runs of a study: which are done, what they scored, and what they chose.

The workdirs hold all state. The name of a workdir has a checksum of all settings of its run, so
equal runs share one, and a changed run gets a new one.
"""

import dataclasses
import functools
import hashlib
import json
import math
import operator
import statistics
from collections.abc import Callable

from vit_jax import config as cfg
from vit_jax import recipes
from vit_jax.config.recorded import differences
from vit_jax.extras.experiments.runs import MAX_BYTES, Run
from vit_jax.extras.experiments.studies import jobs
from vit_jax.extras.experiments.studies.jobs import Job, Option
from vit_jax.extras.experiments.studies.study import Score, Stage
from vit_jax.storage import files, metrics_log
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import Path, path_of
from vit_jax.storage.workdir import CHECKPOINTS, MANIFEST


@dataclasses.dataclass(frozen=True)
class RunStore:
  """The runs of a study in a folder.

  Attributes:
    folder: holds the workdirs, in `runs`.
    overrides: --config.KEY=VALUE of every run.
    choices: the chosen candidates, by their trials; a choice is final.
    metrics: the metrics of the runs that are done, by name; they are final too.
    images: the identity of the images of a dataset, and the first run that was trained or scored
      on them, by the settings that choose them.
  """

  folder: Path
  overrides: tuple[str, ...] = ()
  choices: dict[str, Option] = dataclasses.field(default_factory=dict, repr=False, compare=False)
  metrics: dict[str, dict] = dataclasses.field(default_factory=dict, repr=False, compare=False)
  images: dict[str, tuple[tuple, str]] = dataclasses.field(
    default_factory=dict, repr=False, compare=False
  )

  def run(self, job: Job) -> Run | None:
    """The run of a job; None if its settings are not chosen yet."""
    return self.run_with(job, self.chosen)

  def run_with(self, job: Job, choose: Callable[[Stage], Option | None]) -> Run | None:
    """The run of a job with the settings that `choose` gives for each stage.

    Raises:
      ConfigError: there is no such recipe, or a setting is wrong.
    """
    stage = job.stage
    before = job.before()
    start = None
    if before:
      start = self.run_with(before, choose)
    option = choose(stage)
    if option is None or (before and not start):
      return None
    settings = {**stage.settings, **option, "seed": job.seed}
    flags = (*(f"--config.{key}={value}" for key, value in settings.items()), *self.overrides)
    start_folder = None
    start_name = ""
    if start:
      start_folder = start.folder
      start_name = start_folder.name
    sum_ = fingerprint(stage.recipe, flags, start_name, stage.mode, average=stage.average)
    if start:
      flags += (f"--config.init_from={start_folder}",)
    folder = self.folder / "runs" / f"{stage.name}-seed{job.seed}-{sum_}"
    name = job.in_words()
    return Run(name, stage.recipe, folder, flags, stage.mode, stage.average, start_folder)

  def chosen(self, stage: Stage) -> Option | None:
    """The candidate with the best score; None if not all trials are done.

    Raises:
      RunError: no candidate has a score that is a number.
    """
    if not stage.has_trials():
      return first_option(stage)
    key = repr(jobs.trials_of_all(stage))
    if key not in self.choices:
      scores = self.trial_scores(stage)
      if None in scores:
        return None
      self.choices[key] = stage.choice.options[best_of(scores, stage)]
    return self.choices[key]

  def trial_scores(self, stage: Stage) -> list[float | None]:
    """The mean score of the trials of each candidate; None if not all of them are done.

    [] if nothing is chosen.
    """
    if not stage.has_trials():
      return []
    means = []
    for option in stage.choice.options:
      scores = [self.score(job, stage.choice.score) for job in jobs.trials(stage, option)]
      means.append(None if None in scores else statistics.fmean(scores))
    return means

  def done(self, job: Job) -> dict[str, float] | None:
    """The metrics after the last step of a job's run; None if it is not done.

    Raises:
      RunError: the images of its dataset differ from those of another run, or the run that it
        started from has been repeated since.
    """
    run = self.run(job)
    if run is None:
      return None
    name = run.folder.name
    if name in self.metrics:
      return self.metrics[name]
    metrics = run.result()
    if metrics is None:
      return None
    self._check_images(run.folder)
    before = job.before()
    if before is None or self.done(before):  # else that is repeated, and may get other weights
      check_start(run)
      self.metrics[name] = metrics
    return metrics

  def _check_images(self, folder: Path):
    from vit_jax.data import identity
    from vit_jax.training import start  # imports JAX, which --help does not need

    recorded = start.read_recorded(folder)
    for key, images in recorded.data.items():
      path = key.split(".")[1:]
      dataset = functools.reduce(operator.getitem, path, recorded.settings)
      # Sources of a mix share one order of classes, so they are compared with those of mixes only.
      chosen = [path[:-1], *(dataset.get(name) for name in ("source", *start.OF_IMAGES))]
      other, earlier = self.images.setdefault(json.dumps(chosen), (images, folder.name))
      if how := identity.changes(other, images):
        raise cfg.RunError(
          f"The images of {dataset['source']} have changed between the runs {earlier} and "
          f"{folder.name} ({', '.join(how)}), so their scores cannot be compared: remove the older "
          f"one of the two in {self.folder / 'runs'}, or start again with another --workdir."
        )

  def score(self, job: Job, score: Score) -> float | None:
    """The score of a job; None if its run is not done.

    Raises:
      RunError: the run did not write the metric.
    """
    metrics = self.done(job)
    if metrics is None:
      return None
    folder = self.run(job).folder
    lines = [metrics]
    if score.take == "best" and job.stage.mode == "train":
      lines = metrics_log.read_lines(folder)
    values = [float(line[score.metric]) for line in lines if score.metric in line]
    if not values:
      raise cfg.RunError(
        f"{folder} has no {score.metric}; its evaluation wrote {', '.join(metrics)}. Score one of "
        "these, or remove that folder to run it again."
      )
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
      return math.nan
    if score.better == "larger":
      return max(numbers)
    return min(numbers)

  def saved(self, job: Job) -> bool:
    """Whether a job is done, and the checkpoint of its last step exists to start from.

    The checkpoint may have been removed, or could not be saved.
    """
    metrics = self.done(job)
    if metrics is None:
      return False
    return files.is_folder(self.run(job).folder / CHECKPOINTS / str(metrics["step"]))

  def ready(self, job: Job) -> bool:
    """Whether a job can start: its settings are chosen, and the run before it is saved."""
    before = job.before()
    return self.run(job) is not None and (before is None or self.saved(before))


WEIGHTS = ".weights"  # the file beside a workdir with the checksum of the weights of its start


def note_start(run: Run):
  """Records, before the first start of a run, the weights that it starts from.

  Raises:
    RunError: it has started from other ones, as `check_start`.
  """
  if run.before and not files.exists(run.folder):
    files.write_text(_start_of(run), sum_of_newest(run.before))
  check_start(run)


def check_start(run: Run):
  """Checks that a run has started from the weights that the run before it has now.

  Not if these are gone, or if nothing is recorded: earlier versions did not.

  Raises:
    RunError: names it, and the others that have started from these weights.
  """
  now = run.before and sum_of_newest(run.before)
  if not now or not files.is_file(_start_of(run)):
    return
  known = files.read_bytes(_start_of(run), most=MAX_BYTES)
  if known == now.encode():
    return
  runs = run.folder.parent
  alike = []
  for path in files.matching(runs, f"*{WEIGHTS}"):
    name = path.name.removesuffix(WEIGHTS)
    if files.exists(runs / name) and files.read_bytes(path, most=MAX_BYTES) == known:
      alike.append(name)
  raise cfg.RunError(
    f"{run.before.name} was repeated, and may have other weights than those that "
    f"{', '.join(alike)} started from: remove the latter in {runs} to repeat them too."
  )


def _start_of(run: Run) -> Path:
  return run.folder.with_name(f"{run.folder.name}{WEIGHTS}")


def best_of(scores: list[float], stage: Stage) -> int:
  """The index of the best score, the first of equally good ones.

  Raises:
    RunError: none is a number.
  """
  if all(map(math.isnan, scores)):
    raise cfg.RunError(
      f"Nothing can be chosen for {stage.name!r}: {stage.choice.score.metric} is not a number "
      "for any candidate. Give other candidates."
    )
  sign = 1 if stage.choice.score.better == "larger" else -1
  values = [-math.inf if math.isnan(value) else sign * value for value in scores]
  return values.index(max(values))


def first_option(stage: Stage) -> Option:
  """The candidate to use before one is chosen."""
  return stage.choice.options[0]


def picking(stage: Stage, option: Option) -> Callable[[Stage], Option]:
  """Chooses `option` for a stage, and the first candidate for others."""

  def choose(some):
    return option if some == stage else first_option(some)

  return choose


@functools.cache
def fingerprint(
  recipe: str, flags: tuple[str, ...], start: str, mode: str, *, average: bool
) -> str:
  """A checksum of everything that a run computes.

  It covers the settings that differ from the defaults, so that a later release with more settings
  finds the runs of an earlier one. For weights that a recipe names, their content counts.
  """
  config = recipes.resolve(recipe, flags)
  lines = differences(cfg.to_dict(cfg.Config()), cfg.to_dict(config))
  for group in ("objective", "optimizer"):
    lines += of_its_kind(config, group)
  computed = [lines, start]
  if mode != "train":
    computed.append(mode)
  if not average:
    computed.append("--raw-params")
  computed += map(sum_of_weights, places(config))
  return hashlib.sha256(json.dumps(computed).encode()).hexdigest()[:10]


def of_its_kind(config: cfg.Config, group: str) -> list[str]:
  """The settings that a group has and the default kind lacks, if they differ from its kind's."""
  known = cfg.to_dict(getattr(cfg.Config(), group))
  here = getattr(config, group)
  usual, own = (
    {key: value for key, value in cfg.to_dict(each).items() if key not in known}
    for each in (type(here)(), here)
  )
  return differences({group: usual}, {group: own})


def places(config: cfg.Config) -> list[str]:
  """The places of the weights that a run reads."""
  return [*filter(None, (config.init_from, config.objective.teacher))]


@functools.cache
def sum_of_weights(place: str) -> str:
  """The checksums of the files of weights, to notice other weights at the same path; "" of none.

  For a workdir it is the checksum of the newest checkpoint's manifest, which lists those of its
  files.

  Args:
    place: a file, a folder, a workdir, or one of its checkpoints.

  Raises:
    ConfigError: a file cannot be read.
  """
  path = path_of(place)
  if newest := sum_of_newest(path):
    return newest
  candidates = [path, path.parent / f"{path.name}.json"]
  if files.is_folder(path):
    candidates += files.matching(path)
  return " ".join(map(sum_of_file, filter(files.is_file, candidates)))


def sum_of_newest(workdir: Path) -> str:
  """The checksum of the newest checkpoint's manifest; "" if a path has no checkpoints."""
  steps = reversed(files.numbers_in(workdir / CHECKPOINTS))
  manifests = (workdir / CHECKPOINTS / str(step) / MANIFEST for step in steps)
  newest = next(filter(files.is_file, manifests), None)
  return sum_of_file(newest) if newest else ""


def sum_of_file(path: Path) -> str:
  """The SHA-256 sum of a file; raises ConfigError if it cannot be read."""
  with (
    raised_as(cfg.ConfigError, lambda error: f"{path} cannot be read: {error}.", OSError),
    files.open_file(path) as stream,
  ):
    return hashlib.file_digest(stream, "sha256").hexdigest()
