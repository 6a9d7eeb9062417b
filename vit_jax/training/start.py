"""The start of a run: from its newest checkpoint, or from the weights in config.init_from."""

import dataclasses
import functools
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from vit_jax import models, weights
from vit_jax.config import (
  AUTO,
  Config,
  ConfigError,
  EarlyStopping,
  to_dict,
)
from vit_jax.config.fields import of_added
from vit_jax.config.recorded import changes, from_record
from vit_jax.config.resolve import left_to_rule, with_value
from vit_jax.data import datasets, identity
from vit_jax.data.datasets import History
from vit_jax.data.identity import Identity
from vit_jax.evaluation import results
from vit_jax.learning import train_step
from vit_jax.learning.train_step import TrainState
from vit_jax.storage import checkpoint, files, metrics_log
from vit_jax.storage.base import raised_as
from vit_jax.storage.paths import Path, path_of
from vit_jax.storage.saving import Checkpoints
from vit_jax.storage.workdir import CHECKPOINTS, METRICS
from vit_jax.training import early_stopping, fingerprint
from vit_jax.training.early_stopping import Best
from vit_jax.training.loop import MetricAccumulator
from vit_jax.training.run import Run
from vit_jax.training.steps import START, ImageCount, taken

PATHS = ("init_from", "class_names")
OF_THE_START = (
  *PATHS,
  "new_head",
  "new_positions",
  "keep_representation",
  "position_resizing",
  "model.head_bias",
  "model.head_std",
  "model.layer_scale_init",
  "data.repeats",
  "optimizer.ema",  # an average has one factor from its first step
  "optimizer.ema_corrected",
  *of_added("run", "of_start"),
)
# Settings that have an effect although no step is left; those of evaluations only if one is
# missing.
WITHOUT_STEPS = (
  *("mesh", "early_stopping", "stall_seconds", "plugins"),
  *of_added("run", "without_steps"),
)
OF_EVALUATIONS = ("evaluate", "batch_size", "accumulation", "data")


@dataclasses.dataclass(frozen=True)
class Recorded:
  """The record of a run in the newest readable checkpoint of its workdir.

  Attributes:
    folder: the workdir.
    step: number of steps that are done.
    settings: the settings of the last step, as a plain dict; {} for a new run.
    trained_on: what the parameters were trained on.
    images: the training images of those steps; the batch size of later steps is not set.
    data: the identities of its datasets, by the names of their settings; {} if not known.
    meta: the whole description of the checkpoint.
  """

  folder: Path
  step: int = 0
  settings: Mapping = dataclasses.field(default_factory=dict)
  trained_on: History = ()
  images: ImageCount = START
  data: Mapping[str, Identity] = dataclasses.field(default_factory=dict)
  meta: Mapping = dataclasses.field(default_factory=dict)

  @property
  def new(self) -> bool:
    """Whether the run has no step yet."""
    return not self.settings

  @functools.cached_property
  def config(self) -> Config | None:
    """The settings, with all fields of the model; None for a new run.

    Raises:
      ConfigError: they are not settings of this version.
    """
    if self.new:
      return None
    try:
      config = from_record(self.settings)
      if config.model.name == AUTO:
        return config
      with models.named_as_settings():
        return with_value(config, "model", models.expanded(config.model))
    except ConfigError as error:
      raise ConfigError(f"{self.folder}, checkpoint {self.step}: {error}") from error


def read_recorded(folder: Path) -> Recorded:
  """Reads the record of the run in a workdir.

  Raises:
    ConfigError: the folder is a checkpoint, or the description of its checkpoint is damaged.
  """
  step, meta = checkpoint.described(folder)
  if not meta:
    return Recorded(folder)
  run, _ = checkpoint.named_by(folder)
  if run != folder.absolute():
    raise ConfigError(
      f"--workdir={folder} is a checkpoint of {run}. To go on with this run, give --workdir={run}; "
      f"to start a new run from it, give --config.init_from={folder} and another --workdir."
    )
  try:
    trained_on = datasets.read_history(meta.get("trained_on"))
    data = identity.read_identities(meta.get("data"))
    return Recorded(folder, step, meta["config"], trained_on, taken(meta, step), data, meta)
  except ValueError as error:
    raise ConfigError(f"{folder}, checkpoint {step}: {error}.") from error


def check_saved(run: Recorded):
  """Checks that a run which would begin anew has not lost its checkpoints.

  A run makes their folder before it writes metrics, and saves before it evaluates.

  Raises:
    ConfigError: all checkpoints are damaged; or there is none, and there are metrics of an
      evaluation, or any metrics and the folder is gone from a disk.
  """
  place = run.folder / CHECKPOINTS
  if not run.new:
    return
  anew = "to begin anew, give another --workdir"
  if files.matching(place, f"*{checkpoint.DAMAGED}*"):
    raise ConfigError(f"{run.folder} cannot go on: all checkpoints in {place} are damaged; {anew}.")
  if checkpoint.available(run.folder):  # damaged; the restore will report it
    return
  lines = metrics_log.read_lines(run.folder)
  gone = isinstance(place, pathlib.Path) and not files.is_folder(place)
  if lines and (gone or results.evaluations_in(run.folder)):
    raise ConfigError(
      f"{run.folder} has metrics of {max(line['step'] for line in lines):,} steps, but {place} has "
      "no checkpoint: none could be saved, they were removed, or their disk is not mounted. Bring "
      f"them back; {anew}, or move {METRICS} away."
    )


def history_of(place: str, step: int = 0) -> History:
  """The datasets that weights were trained on; () if not known.

  Args:
    place: config.init_from, or a workdir; "": no weights.
    step: which checkpoint of a workdir; 0: the newest.

  Raises:
    ConfigError: the file with the history is damaged.
  """
  if not place:
    return ()
  with raised_as(ConfigError, lambda error: f"{place}: {error}", ValueError, OSError):
    return weights.trained_on(path_of(place), step=step)


def trained_on(config: Config, run: Recorded) -> History:
  """The datasets that parameters were trained on: by a run's record, and what it `learned_from`.

  The record of the steps so far lacks a teacher that only later ones have.

  Raises:
    ConfigError: as `history_of`.
  """
  start = config.init_from if run.new else ""  # else it is in the record
  learned = learned_from(start, config.objective.teacher)
  return tuple(dict.fromkeys((*run.trained_on, *learned)))


def learned_from(*places: str) -> History:
  """The datasets that weights at these places were trained on: those of the start, and teachers.

  A teacher tells what it learned, so its images may not be scored either.

  Raises:
    ConfigError: as `history_of`.
  """
  return tuple(dict.fromkeys(known for place in places for known in history_of(place)))


def as_begun(config: Config, run: Recorded) -> Config:
  """The settings of a resumed run, with the paths of its start as they were recorded.

  The same path may be spelled differently now, and weights may have been moved.

  Raises:
    ConfigError: the run began with other weights.
  """
  if run.new:
    return config
  kept = {key: run.settings.get(key) for key in PATHS}
  same = {key: old for key, old in kept.items() if files.same(old, getattr(config, key))}
  if _is_moved(run, config.init_from):
    same["init_from"] = kept["init_from"]
  begun = config
  for key, old in same.items():
    begun = with_value(begun, key, old)
  check_start(begun, run, ("init_from",))  # before rules read these weights
  return begun


def suiting_devices(recorded: Config | None, config: Config) -> Config | None:
  """The settings of a run so far, without parts that a rule chose and these devices cannot compute.

  Args:
    recorded: the settings; None: it is a new run.
    config: the settings now, by these and by the devices.
  """
  split = config.mesh.data * config.mesh.fsdp * config.parts
  if "accumulation" in config.derived and config.batch_size % split:
    return left_to_rule(recorded, "accumulation")
  return recorded


def _is_moved(run: Recorded, now: str) -> bool:
  """Whether `now` leads to the weights of the start, which are no longer where they were.

  They have the same name, of a checkpoint that of its run too, and the same history, which only
  weights of a run have.
  """
  before = run.settings.get("init_from")
  if not (isinstance(before, str) and before and now):
    return False
  if _names(now) != _names(before) or files.exists(path_of(before)):
    return False
  history = history_of(now)
  return bool(history) and all(known in run.trained_on for known in history)


def _names(place: str) -> tuple[str, ...]:
  """The name of a workdir, or those of a checkpoint and of its workdir."""
  path = path_of(place)
  if path.parent.name == CHECKPOINTS:
    return path.name, path.parent.parent.name
  return (path.name,)


def of_the_start(config: Config) -> tuple[str, ...]:
  """The settings that a run cannot change once it has begun."""
  return (*OF_THE_START, *(f"optimizer.{name}" for name in config.optimizer.of_start))


def check_start(config: Config, run: Recorded, keys: Collection[str] = ()):
  """Checks that settings which count from the start are unchanged, of those in `keys` or of all.

  Raises:
    ConfigError: a setting has changed.
  """
  if run.new:
    return
  if late := changed(run.settings, config, keys or of_the_start(config)):
    raise ConfigError(
      f"{run.folder} has {run.step:,} steps already, and {'; '.join(late)} only counts from the "
      "start; leave it as it was, or begin a run with another --workdir."
    )


def check_changes(
  config: Config,
  run: Recorded,
  total: int,
  data: Mapping[str, Identity],
  class_names: Sequence[str] | None = None,
):
  """Checks that changes since the steps so far are allowed, and have an effect.

  Args:
    config: the settings.
    run: the record of the run.
    total: number of steps of the whole run.
    data: the identities of the datasets now.
    class_names: of the training data; None: not compared.

  Raises:
    ConfigError: names the settings, or the images.
  """
  if run.new:
    return
  if steps_left(run, config.early_stopping, total):
    check_data(run, config, data, class_names)
    return
  check_changes_count(config, run, total)
  if run.step not in results.steps_in(run.folder):  # its evaluation is left to do
    scored = {key: known for key, known in data.items() if key.startswith("config.evaluate.")}
    check_data(run, config, scored)


def check_changes_count(config: Config, run: Recorded, total: int):
  """Checks that a run without a step left has no changed setting that would need one.

  Early stopping has ended it, if it has fewer than `total` steps.

  Raises:
    ConfigError: names the settings.
  """
  counting = WITHOUT_STEPS
  if run.step not in results.steps_in(run.folder):
    counting = (*counting, *OF_EVALUATIONS)
  idle = set(changed(run.settings, config)) - set(changed(run.settings, config, counting))
  if idle:
    ended, longer = f"has all of its {run.step:,} steps", "give a longer config.duration"
    if run.step < total:
      ended = f"was stopped early after step {run.step:,}"
      longer = "raise config.early_stopping.patience (0: never)"
    raise ConfigError(
      f"{run.folder} {ended}, so {'; '.join(sorted(idle))} has no effect; leave it as it was, "
      f"{longer}, score the run on other sets with --mode=evaluate, or begin a run with another "
      "--workdir."
    )


def steps_left(run: Recorded, settings: EarlyStopping, total: int) -> bool:
  """Whether the run has steps left, unless early stopping with these settings has ended it."""
  lines = [line for line in metrics_log.read_lines(run.folder) if line["step"] <= run.step]
  best = early_stopping.recorded(run.meta, settings.metric)
  best = early_stopping.best_of(lines, settings.metric, best)
  return run.step < total and not early_stopping.EarlyStopping(settings, best).should_stop


def newest(recorded: Recorded) -> Path:
  """The folder of the newest checkpoint."""
  return recorded.folder.absolute() / CHECKPOINTS / str(recorded.step)


def check_fits(run: Run, recorded: Recorded):
  """Checks that the newest checkpoint fits the run, by its description.

  So it is refused before a step is compiled, which takes minutes.

  Raises:
    ConfigError: it has other classes or arrays.
  """
  folder = newest(recorded)
  checkpoint.check_classes(folder, recorded.meta, run.data.train.class_names)
  config = to_dict(run.config)
  abstract = run.saved(run.abstract)
  checkpoint.check_compatible(folder, recorded.meta, abstract, lambda old: changes(old, config))


def changed(settings: Mapping, config: Config, keys: Collection[str] = ("",)) -> list[str]:
  """How the settings or groups `keys` differ from recorded ones, as `changes` writes it."""
  prefixes = []
  for key in keys:
    group = f"config.{key}." if key else "config."
    prefixes += [group, f"config.{key}:"]
  lines = changes(dict(settings), to_dict(config))
  return [line for line in lines if line.startswith(tuple(prefixes))]


OF_IMAGES = ("split", "image_key", "label_key", "exclude", "subset")  # settings of a dataset


def data_changes(
  settings: Mapping, known: Mapping[str, Identity], config: Config, data: Mapping[str, Identity]
) -> list[str]:
  """How the images differ from those of the steps so far, unless a changed setting explains it.

  Args:
    settings: the settings of the steps so far.
    known: the identities of their datasets.
    config: the settings now.
    data: the identities of the datasets now.
  """

  def asked(key):
    dataset = key.removeprefix("config.")
    return changed(settings, config, [f"{dataset}.{name}" for name in OF_IMAGES])

  differing = identity.all_changes(known, data)
  return [f"{key}: {how}" for key, how in differing.items() if not asked(key)]


def check_data(
  run: Recorded,
  config: Config,
  data: Mapping[str, Identity],
  class_names: Sequence[str] | None = None,
):
  """Checks that a run resumes with the same images, unless config.data.changed allows others.

  Raises:
    ConfigError: the images have changed, and config.data.changed is "refuse"; the message names the
      classes if these have changed, because then no run goes on.
  """
  if config.data.changed != "refuse":
    return
  if said := data_changes(run.settings, run.data, config, data):
    if class_names is not None:
      checkpoint.check_classes(newest(run), run.meta, class_names)
    raise ConfigError(
      f"{run.folder} has {run.step:,} steps already, of other images: {'; '.join(said)}. Bring "
      "them back as they were, if they were changed (a newer version may choose others, as its "
      "changelog says), go on with those of now by --config.data.changed=continue, or begin a run "
      "with another --workdir."
    )


class StartState(NamedTuple):
  """The state from which a run starts or resumes.

  Attributes:
    state: from the newest checkpoint, or freshly initialised.
    since: the metrics since the last line.
    images: the training images of the steps that are done.
    fresh: whether there was no checkpoint.
    changed: settings that differ from those of the checkpoint.
    best: the best evaluation so far, from the checkpoint.
    lines: the lines of metrics.jsonl when the checkpoint was saved; 0 if not known.
  """

  state: TrainState
  since: MetricAccumulator
  images: ImageCount = START
  fresh: bool = True
  changed: Sequence[str] = ()
  best: Best = Best()
  lines: int = 0


def start_state(run: Run, checkpoints: Checkpoints) -> StartState:
  """Restores the newest checkpoint, or makes a fresh state."""

  def whole(state):
    return train_step.with_given(state, run.objective, run.abstract)

  config = to_dict(run.config)
  abstract = run.saved(run.abstract)
  names = run.data.train.class_names
  state = checkpoints.restore(abstract, names, lambda recorded: changes(recorded, config))
  if state is None:
    fresh = train_step.create_state(lambda: run.saved(run.init()), abstract)
    return StartState(whole(fresh), MetricAccumulator())
  step = int(state.step)
  meta = checkpoints.meta(step)
  differing = changes(meta["config"], config)
  since = MetricAccumulator.recorded(meta)
  known = identity.read_identities(meta.get("data"))
  differing += data_changes(meta["config"], known, run.config, run.data.identities)
  differing += fingerprint.changes(meta.get("program", {}), run.program())
  best = early_stopping.recorded(meta, run.config.early_stopping.metric)
  return StartState(
    whole(state),
    since,
    images=taken(meta, step),
    fresh=False,
    changed=differing,
    best=best,
    lines=meta.get("lines", 0),
  )
