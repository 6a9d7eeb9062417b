"""The model of a run whose settings name none: that of its checkpoint, or of its weights."""

import dataclasses
from collections.abc import Mapping

from vit_jax import models
from vit_jax.config import Config, ConfigError, Model, RunError, recorded
from vit_jax.config.reading import expanded
from vit_jax.inference import model as inference
from vit_jax.models.differences import FIELDS


def completed(config: Config, begun: Mapping) -> Config:
  """Fills in an empty config.model.name, and what the model has otherwise than its name says.

  Settings of the model that are given stay as they are. So do those that do not belong to its
  architecture: dropout, types, remat, classes.

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
  """The settings of the run's own model, or else of that of the weights to start from."""
  try:
    if begun:
      return recorded.settings({"model": begun["model"]}).model
    return models.settings_of(inference.read(expanded(init_from)).module)
  except (ValueError, LookupError, TypeError, AttributeError, OSError, RunError) as error:
    raise ConfigError(f"config.init_from={init_from}: {error}") from error
