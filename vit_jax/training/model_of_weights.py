"""The model of a run whose settings name none: that of its checkpoint, or of its weights."""

import dataclasses
from collections.abc import Mapping

from vit_jax import models
from vit_jax.config import Config, ConfigError, Model, RunError, from_dict
from vit_jax.config.reading import expanded
from vit_jax.inference import model as inference
from vit_jax.models.differences import FIELDS
from vit_jax.storage import checkpoint
from vit_jax.training import resumed


def completed(config: Config, begun: Mapping) -> Config:
  """Fills in an empty config.model.name, and what the model has otherwise than its name says.

  Settings of the model that differ from their default stay as they are; a setting at its default
  counts as not given. Those that do not belong to its architecture stay too: dropout, types, remat,
  classes.

  Args:
    config: the settings.
    begun: the settings that the run has recorded; {} for a new run.

  Raises:
    ConfigError: there are no weights, they cannot be read, or they are of a model without a name.
  """
  if config.model.name:
    return config
  if not begun and not config.init_from:
    raise ConfigError(
      "config.model.name is empty, which stands for the model of the weights, and config.init_from "
      "is empty too; give one of them, such as --config.model.name=ViT-B/16."
    )
  told, usual = settings_of(config.init_from, begun), Model()
  taken = {"name": told.name} | {
    field: getattr(told, field)
    for field in FIELDS
    if hasattr(usual, field) and getattr(config.model, field) == getattr(usual, field)
  }
  return dataclasses.replace(config, model=dataclasses.replace(config.model, **taken))


def settings_of(init_from: str, begun: Mapping) -> Model:
  """The settings of the run's own model, or else of that of the weights to start from.

  Those of a run are read from the description of its checkpoint: its arrays cannot be read before
  the processes are connected.
  """
  place = "The settings recorded in the workdir" if begun else f"config.init_from={init_from}"
  try:
    path = expanded(init_from)
    if not begun and not checkpoint.named_by(path)[1]:
      return models.settings_of(inference.read(path).module)
    values = begun or resumed.recorded(init_from)
    if "model" not in values:
      raise ValueError("they name no model" if begun else "none of its checkpoints can be read")
    return from_dict({"model": values["model"]}).model
  except (ValueError, LookupError, TypeError, AttributeError, OSError, RunError) as error:
    raise ConfigError(f"{place}: {error}") from error
