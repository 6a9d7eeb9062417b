"""Weights in the checkpoints of a run, and what its settings say about them."""

import logging
import pathlib
from collections.abc import Mapping

from vit_jax import models
from vit_jax.config import ConfigError, Model
from vit_jax.config.recorded import from_record
from vit_jax.data import datasets
from vit_jax.data.datasets import History
from vit_jax.models.stacking import unstack_blocks
from vit_jax.registry import PARAMETRIZATIONS
from vit_jax.storage import checkpoint, files
from vit_jax.storage.workdir import STARTS
from vit_jax.weights.card import Card, average_warning
from vit_jax.weights.format import Weights

_log = logging.getLogger(__name__)


def is_at(path: pathlib.Path) -> bool:
  """Whether a path is a run's workdir, or one of its checkpoints."""
  return bool(checkpoint.named_by(path)[1]) or files.is_file(path / STARTS)


def read_checkpoint(path: pathlib.Path, step: int, average: bool) -> Weights:
  """Reads the weights of a workdir or of one of its checkpoints; arguments as for `source.read`.

  Raises:
    ConfigError: there is no such step.
    CheckpointError: the checkpoint is damaged.
  """
  folder, steps = checkpoint.named_by(path)
  if not steps:
    raise ConfigError(
      f"{path} is a run without checkpoints: none has been saved yet, or they were removed."
    )
  if step and step not in steps:
    known = ", ".join(map(str, steps))
    raise ConfigError(f"{path} has no checkpoint of step {step}; its steps are {known}.")
  chosen = step
  if folder != path.absolute():  # `path` names one of the checkpoints
    chosen = steps[0]
  return of_run(folder, chosen, average)[1]


def trained_on(path: pathlib.Path, step: int) -> History:
  """As `source.trained_on`."""
  _, meta = checkpoint.described(path, step)
  if not meta:
    return ()
  return datasets.read_history(meta.get("trained_on"))


def of_run(folder: pathlib.Path, step: int, average: bool) -> tuple[pathlib.Path, Weights]:
  """The checkpoint of a workdir, and its weights; other arguments as for `source.read`.

  Raises:
    CheckpointError: the checkpoint is damaged, or there is none.
  """
  return checkpoint.read_readable(folder, step, lambda path: of_checkpoint(path, average))


def of_checkpoint(folder: pathlib.Path, average: bool) -> Weights:
  """Reads the weights of a checkpoint; `average` as in `source.read`.

  Warns of an average that still holds much of the initial parameters.
  """
  meta = checkpoint.read_meta(folder)
  average = average and any(name.startswith("ema/") for name in meta["arrays"])
  if average:
    step = int(folder.name)
    total = meta.get("total", step)  # earlier versions did not record it
    if warning := average_warning(meta["config"]["optimizer"], step, total):
      _log.warning("%s: %s", folder, warning)
  params = checkpoint.load_params(folder, ema=average)
  for name in PARAMETRIZATIONS.keys() & params.keys():
    params = PARAMETRIZATIONS[name].merged(params, meta["config"][name])
  card = card_of(meta, average=average)
  return Weights(unstack_blocks(params), card, meta["config"], step=int(folder.name))


def card_of(meta: Mapping, *, average: bool) -> Card:
  """The card of a checkpoint with this description."""
  data = meta["config"]["data"]
  return Card(
    image_size=data["image_size"],
    resize=data["evaluate_resize"],
    squeeze=data["evaluate_squeeze"],
    resampling=data["resampling"],
    position_resizing=meta["config"]["position_resizing"],
    class_names=tuple(meta["class_names"]),
    loss=meta["config"]["loss"]["kind"],
    model=model_of(meta["config"]),
    representation=meta["representation"],
    trained_on=datasets.read_history(meta["trained_on"]),
    average=average,
  )


def model_of(settings: Mapping) -> Model:
  """The architecture that a run recorded, with all fields.

  Raises:
    ConfigError, ValueError: this version has no such architecture.
  """
  return models.expanded(from_record(settings, "model").model)
