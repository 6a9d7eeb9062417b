"""The settings in a run's config.json; --config=THIS_FILE:WORKDIR uses them as a recipe."""

import pathlib
from collections.abc import Mapping
from typing import Any

import ml_collections

from vit_jax import config as cfg
from vit_jax.config.reading import expanded, read_json

MAX_BYTES = 2**24


def settings(values: Mapping[str, Any]) -> cfg.Config:
  """The settings that a run recorded; those that are missing get their defaults.

  Raises:
    ConfigError: a setting no longer exists, or a value is no longer allowed.
  """
  return cfg.from_dict(_completed(values, cfg.to_dict(cfg.Config()), "config"))


def read(workdir: pathlib.Path) -> cfg.Config:
  """The settings in WORKDIR/config.json.

  Raises:
    ConfigError: the file does not exist or cannot be read.
  """
  path = workdir / "config.json"
  if not path.exists():
    raise cfg.ConfigError(
      f"{path} is not there, so the run's settings are not known; give --config=configs/NAME.py."
    )
  try:
    return settings(read_json(path, most=MAX_BYTES))
  except cfg.ConfigError as error:
    raise cfg.ConfigError(f"{path}: {error}") from error
  except (OSError, ValueError, AttributeError, TypeError) as error:
    raise cfg.ConfigError(
      f"{path} does not hold the settings of a run ({error}); give --config=configs/NAME.py."
    ) from error


def get_config(workdir: str) -> ml_collections.ConfigDict:
  """The settings of a workdir as a recipe."""
  return cfg.to_config_dict(read(expanded(workdir)))


def _completed(values, defaults, path):
  if path in cfg.NAMED:
    return {k: _completed(v, cfg.NAMED[path], f"{path}.{k}") for k, v in values.items()}
  return defaults | {
    key: _completed(value, defaults[key], f"{path}.{key}")
    if isinstance(value, dict) and isinstance(defaults.get(key), dict)
    else value
    for key, value in values.items()
  }
