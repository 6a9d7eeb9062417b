"""What a resumed or evaluated run takes from its checkpoint, and what can no longer be changed."""

import dataclasses
import os
import pathlib
from collections.abc import Collection, Mapping

from vit_jax import weights
from vit_jax.config import AUTO, Config, ConfigError, EarlyStopping, Model, to_dict
from vit_jax.config.changes import changes
from vit_jax.config.reading import expanded
from vit_jax.data import history
from vit_jax.data.history import History
from vit_jax.evaluation import evaluate, registry
from vit_jax.storage import checkpoint, metrics_log
from vit_jax.training import early_stopping
from vit_jax.training.steps import START, ImageCount, taken

PATHS = ("init_from", "class_names")
OF_THE_START = (
  *(*PATHS, "new_head", "new_positions", "keep_representation", "model.head_bias"),
  *("optimizer.ema", "optimizer.ema_corrected"),  # an average has one factor from its first step
)
# Settings that count although no step is left; those of evaluations only if one is missing.
WITHOUT_STEPS = ("mesh", "early_stopping", "report", "stall_seconds")
OF_EVALUATIONS = (
  *("batch_size", "accumulation", "data.evaluate_resize", "data.allow_overlap"),
  *("data.max_pixels", "data.threads", "data.ahead"),
)


@dataclasses.dataclass(frozen=True)
class Begun:
  """What the newest readable checkpoint of a workdir tells of its run.

  Attributes:
    folder: the workdir.
    step: number of steps that are done.
    config: the settings of the last of them; {}: there is no checkpoint, so the run is a new one.
    trained_on: what the parameters were trained on.
    images: the training images of those steps; without a batch size of later ones.
  """

  folder: pathlib.Path
  step: int = 0
  config: Mapping = dataclasses.field(default_factory=dict)
  trained_on: History = ()
  images: ImageCount = START


def read(folder: pathlib.Path) -> Begun:
  """What is known of the run in a workdir.

  Raises:
    ConfigError: the description of its checkpoint is damaged.
  """
  step, meta = checkpoint.described(folder)
  if not meta:
    return Begun(folder)
  try:
    images = ImageCount(step, taken(meta, step), batch_size=0)  # of now: not known yet
    known = history.read(meta.get("trained_on"))
    return Begun(folder, step, meta["config"], known, images)
  except (ValueError, TypeError) as error:
    raise ConfigError(f"{folder}, checkpoint {step}: {error}.") from error


def recorded(place: str, step: int = 0) -> Mapping:
  """The settings of a checkpoint, with arguments as `history_of`; {} without one."""
  return checkpoint.described(expanded(place), step)[1].get("config", {}) if place else {}


def history_of(place: str, step: int = 0) -> History:
  """What weights were trained on; () if it is not known.

  Args:
    place: config.init_from, or a workdir; "": no weights.
    step: which checkpoint of a workdir; 0: the newest.

  Raises:
    ConfigError: the file that tells it is damaged.
  """
  try:
    return weights.trained_on(expanded(place), step=step) if place else ()
  except (ValueError, OSError) as error:
    raise ConfigError(f"{place}: {error}") from error


def going_on(config: Config, begun: Begun) -> Config:
  """The settings of a run that goes on, with what belongs to its start as it was recorded.

  Raises:
    ConfigError: a setting that only counts from the start is not as it was.
  """
  if not begun.config:
    return config
  kept = {key: begun.config.get(key) for key in PATHS}
  same = {key: old for key, old in kept.items() if is_same(old, getattr(config, key))}
  config = dataclasses.replace(config, model=typed(config.model, begun.config), **same)
  late = changed(begun.config, config, OF_THE_START)
  if late:
    raise ConfigError(
      f"{begun.folder} has {begun.step:,} steps already, and {'; '.join(late)} only counts from "
      "the start; leave it as it was, or begin a run with another --workdir."
    )
  return config


def is_same(path: str, other: str) -> bool:
  """Whether two texts name the same path."""
  if not (isinstance(path, str) and path and other):
    return False
  return os.path.realpath(expanded(path)) == os.path.realpath(expanded(other))


def check_counts(config: Config, begun: Begun, total: int):
  """Checks, in a run without a step left, that no changed setting needs one to have an effect.

  Args:
    config: the settings.
    begun: the run so far.
    total: number of steps of the whole run.

  Raises:
    ConfigError: names the settings.
  """
  if not begun.config or steps_left(begun, config.early_stopping, total):
    return
  still = WITHOUT_STEPS
  if begun.step not in evaluate.steps_in(begun.folder):
    groups = [kind.group.removeprefix("config.") for kind in registry.SPECS]
    still = (*still, *OF_EVALUATIONS, *groups)
  idle = set(changed(begun.config, config)) - set(changed(begun.config, config, still))
  if idle:
    raise ConfigError(
      f"{begun.folder} has all of its {begun.step:,} steps, so {'; '.join(sorted(idle))} has no "
      "effect; leave it as it was, give a longer config.duration, score the run on other sets with "
      "--mode=evaluate, or begin a run with another --workdir."
    )


def steps_left(begun: Begun, settings: EarlyStopping, total: int) -> bool:
  """Whether the run has steps left; early stopping, with these settings, may have ended it."""
  lines = [line for line in metrics_log.read(begun.folder) if line["step"] <= begun.step]
  best = early_stopping.best_of(lines, settings.metric)
  return begun.step < total and not early_stopping.EarlyStopping(settings, best).should_stop


def changed(recorded: Mapping, config: Config, keys: Collection[str] = ("",)) -> list[str]:
  """How settings differ from recorded ones, as `changes`; only `keys` and the groups `keys`."""
  found = changes(dict(recorded), to_dict(config))
  named = tuple(f"config.{key}{end}" for key in keys for end in ("." if key else "", ":"))
  return [one for one in found if one.startswith(named)]


def typed(model: Model, recorded: Mapping, platform: str = "") -> Model:
  """Replaces config.model.compute_dtype="auto" by a type.

  Args:
    model: config.model.
    recorded: the settings of a checkpoint, whose type is taken; {}: there is none.
    platform: JAX's name for the kind of devices; it decides if no type is recorded. "": none does.
  """
  if model.compute_dtype != AUTO:
    return model
  found = recorded.get("model")
  kind = found.get("compute_dtype") if isinstance(found, Mapping) else None
  if kind not in ("float32", "bfloat16"):
    kind = {"": AUTO, "cpu": "float32"}.get(platform, "bfloat16")
  return dataclasses.replace(model, compute_dtype=kind)
