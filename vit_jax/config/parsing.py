"""Converts between dataclasses, plain dictionaries and the ConfigDict of the command line."""

import dataclasses
import math
import unicodedata
from collections.abc import Mapping
from typing import Any, get_args, get_origin

import ml_collections

from vit_jax.config.data import Dataset
from vit_jax.config.duration import Duration
from vit_jax.config.errors import ConfigError
from vit_jax.config.fields import MOST_ITEMS, MOST_NUMBER, MOST_TEXT
from vit_jax.config.run import Config
from vit_jax.config.suggestions import similar, unknown
from vit_jax.process.text import shown


def to_dict(config) -> dict[str, Any]:
  """The settings as plain nested dictionaries, ready for JSON."""
  return dataclasses.asdict(config)


def to_config_dict(config) -> ml_collections.ConfigDict:
  """The settings for the command line, where `config_flags` can override any key.

  Whole numbers given for float settings become floats, because an override must have the same type.
  """
  return ml_collections.ConfigDict(to_dict(from_dict(to_dict(config))))


def from_dict(values: Mapping[str, Any]) -> Config:
  """Builds a `Config`; every key must be given.

  Raises:
    ConfigError: a key is unknown or missing, or a value has a wrong type or is out of bounds.
  """
  return _build(Config, values, "config")


def dataset_of(values: Mapping[str, Any], path: str) -> Dataset:
  """A dataset of some of its settings; the others have their defaults.

  Raises:
    ConfigError: as `from_dict`; `path` names the dataset.
  """
  return _build(Dataset, to_dict(Dataset()) | dict(values), path)


def replace_units(values: dict[str, Any], overridden: list[str]) -> dict[str, Any]:
  """Makes a unit of a duration from the command line replace the unit of the recipe.

  A unit that is 0 replaces it too, so that `--config.schedule.warmup.steps=0` means none.

  `overridden` holds dotted keys, such as `duration.steps`. If the command line gives two units for
  one duration, both are kept, and `from_dict` refuses them.
  """
  units = [field.name for field in dataclasses.fields(Duration)]
  for key in overridden:
    *path, unit = key.split(".")
    node = values
    for part in path:
      node = node[part]
    if unit not in units or set(node) != set(units):
      continue
    for other in units:
      if ".".join([*path, other]) not in overridden:
        node[other] = 0
  return values


def _build(kind, values, path):
  if not isinstance(values, Mapping):
    raise ConfigError(f"{path}={values!r} is one value; it must be a group of settings.")
  fields = {field.name: field for field in dataclasses.fields(kind)}
  for key in values:
    if key not in fields:
      raise ConfigError(unknown(path, key, fields))
  missing = fields.keys() - values.keys()
  if missing:
    raise ConfigError(
      f"{path} lacks {', '.join(sorted(missing))}; start from vit_jax.config.Config."
    )
  built = kind(**{key: _value(fields[key], values[key], f"{path}.{key}") for key in fields})
  if kind is Duration and len(built.given()) > 1:
    raise ConfigError(
      f"{path} is given twice, as {built.given()}; keep one and set the others to 0."
    )
  return built


def _build_named(kind, values, path):
  if not isinstance(values, Mapping):
    raise ConfigError(f"{path}={values!r} is one value; it must be groups of settings by name.")
  return {name: _build(kind, item, f"{path}.{name}") for name, item in values.items()}


def _value(field, value, path):
  if dataclasses.is_dataclass(field.type):
    return _build(field.type, value, path)
  if get_origin(field.type) is Mapping:
    return _build_named(get_args(field.type)[1], value, path)
  value = _typed(field.type, value, path)
  _check_bounds(value, path, **field.metadata)
  return value


def _typed(kind, value, path):
  if kind is float and type(value) is int and abs(value) < MOST_NUMBER:
    return float(value)
  if kind is float and isinstance(value, float) and not math.isfinite(value):
    raise ConfigError(f"{path}={value} is not a finite number; give one.")
  if kind is tuple and isinstance(value, (list, tuple)):
    items = tuple(tuple(item) if isinstance(item, list) else item for item in value)
    _check_items(items, path)
    return items
  if type(value) is not kind:
    given = type(value).__name__
    raise ConfigError(f"{path}={shown(value)} is {given}; it must be {kind.__name__}.")
  if kind is str:
    _check_text(value, path)
  return value


def _check_items(items, path):
  if len(items) > MOST_ITEMS:
    raise ConfigError(f"{path} holds {len(items):,} values; the most is {MOST_ITEMS:,}.")
  if any(type(item) is int and abs(item) > MOST_NUMBER for item in items):
    raise ConfigError(f"{path}={shown(items)} holds a number beyond {MOST_NUMBER:g}; lower it.")


def _check_text(value, path):
  if len(value) > MOST_TEXT:
    raise ConfigError(f"{path} has {len(value):,} characters; the most is {MOST_TEXT:,}.")
  if any(unicodedata.category(c) == "Cc" for c in value):
    raise ConfigError(
      f"{path}={shown(value)} holds a control character, such as a line break; leave it out."
    )


def _check_bounds(value, path, *, meaning, choices, low, high, off, used_if):
  if choices and value not in choices:
    raise ConfigError(
      f"{path}={shown(value)} is not a choice ({meaning}); nearest: {similar(value, choices)}."
    )
  if off is not None and value == off:
    return
  also = "" if off is None else f", or {off:g}"
  if low is not None and not value >= low:
    raise ConfigError(f"{path}={shown(value)} is too small ({meaning}); the least is {low}{also}.")
  if high is not None and not value <= high:
    raise ConfigError(f"{path}={shown(value)} is too large ({meaning}); the most is {high}{also}.")
