"""Converts between dataclasses, plain dictionaries and the ConfigDict of a recipe."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import ml_collections

from vit_jax.config.data import Dataset
from vit_jax.config.fields import (
  AUTO,
  LEFT_TO_RULE,
  MAX_ITEMS,
  MAX_NUMBER,
  MAX_TEXT,
  Duration,
  Group,
  Size,
  as_size,
  group_in,
  is_auto,
  rule_of,
)
from vit_jax.config.run import Config
from vit_jax.config.suggestions import similar, unknown
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import shown


def to_dict(config) -> dict[str, Any]:
  """The settings as plain nested dictionaries, ready for JSON."""
  return dataclasses.asdict(config)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
  """Nested settings by their full names after `prefix`, such as "model.depth"."""
  result = {}
  for key, value in values.items():
    if isinstance(value, Mapping):
      result |= flat(value, f"{prefix}{key}.")
    else:
      result[f"{prefix}{key}"] = value
  return result


def to_config_dict(config) -> ml_collections.ConfigDict:
  """The settings as a recipe returns them.

  They take values of any type, because a number replaces AUTO; `from_dict` checks them.
  """
  return ml_collections.ConfigDict(to_dict(config), type_safe=False)


def from_dict(values: Mapping[str, Any]) -> Config:
  """Builds a `Config`; settings that are not given have their defaults.

  Raises:
    ConfigError: a key is unknown, or a value has a wrong type or is out of bounds.
  """
  return build(Config(), values, "config")


def checked(config: Config | ml_collections.ConfigDict) -> Config:
  """The settings that a program has made, checked as those of a recipe are.

  Numbers of NumPy and JAX become Python's own, so that they can be recorded.

  Raises:
    ConfigError: as `from_dict`.
  """
  if isinstance(config, ml_collections.ConfigDict):
    return from_dict(plain(config.to_dict()))
  return from_dict(plain(to_dict(config)))


def dataset_of(values: Mapping[str, Any], path: str) -> Dataset:
  """A dataset with these settings; the others have their defaults.

  Raises:
    ConfigError: as `from_dict`; `path` names the dataset.
  """
  return build(Dataset(), values, path)


def build(default, values: Mapping[str, Any], path: str, group: Group | None = None):
  """The settings `default` with the given values in place of their own; `group` describes them."""
  if not isinstance(values, Mapping):
    raise ConfigError(f"{path}={values!r} is one value; it must be a group of settings.")
  fields = {field.name: field for field in dataclasses.fields(default)}
  for key in values:
    if key not in fields:
      raise ConfigError(unknown(path, key, fields, group))
  replaced = {
    key: _value(fields[key], getattr(default, key), value, f"{path}.{key}")
    for key, value in values.items()
    if fields[key].init  # the class has the name of its kind
  }
  built = dataclasses.replace(default, **replaced)
  if isinstance(built, Duration) and len(built.given()) > 1:
    raise ConfigError(
      f"{path} is given twice, as {built.given()}; keep one and set the others to 0."
    )
  return built


def class_of(group: Group, values: Any, path: str) -> type:
  """The dataclass of a group with these values.

  Raises:
    ConfigError: there is no such kind.
  """
  kind = group.kind(values) if isinstance(values, Mapping) else group.default
  if not isinstance(kind, str) or kind not in group.kinds:
    raise ConfigError(
      f"{path}.kind={shown(kind)} is not a choice; nearest: {similar(str(kind), group.kinds)}."
    )
  return group.settings(kind)


def value_of(field: dataclasses.Field, value: Any, path: str) -> Any:
  """A value for a setting that is no group, in the type of the field; AUTO is none.

  Raises:
    ConfigError: as `from_dict`; `path` names the setting.
  """
  value = _typed(field.type, value, path)
  _check_bounds(value, path, **field.metadata | {"auto": None})
  return value


def plain(value: Any) -> Any:
  """The value without types of NumPy and JAX: arrays become lists, and scalars Python's own."""
  if isinstance(value, Mapping):
    return {key: plain(item) for key, item in value.items()}
  if isinstance(value, (list, tuple)):
    items = map(plain, value)
    return tuple(items) if isinstance(value, tuple) else list(items)
  if not hasattr(value, "tolist"):
    return value
  if getattr(value, "ndim", 1):
    return [plain(item) for item in value]
  number = value.tolist()
  if isinstance(number, float):
    return float(str(value))  # 0.3 in float32 is 0.3, not 0.30000001192092896
  return number


def _value(field, default, value, path):
  group = group_in(field)
  if isinstance(default, Duration):
    return _duration(field, default, value, path, group)
  if group is None:
    if isinstance(value, str) and value == AUTO and rule_of(field):
      return AUTO
    value = _typed(field.type, value, path)
    _check_bounds(value, path, **field.metadata)
    return value
  if group.listed:
    return _listed(group, value, path)
  if not group.by_name:
    return _group(group, default, value, path)
  if not isinstance(value, Mapping):
    raise ConfigError(f"{path}={value!r} is one value; it must be groups of settings by name.")
  return {name: _group(group, None, item, f"{path}.{name}") for name, item in value.items()}


def _duration(field, default, values, path, group):
  """A duration; AUTO for all of it, or for each unit, leaves it to its rule."""
  if not isinstance(values, Mapping):
    if rule_of(field) and values == AUTO:
      return LEFT_TO_RULE
    return _group(group, default, values, path)
  if not values:
    return default
  if rule_of(field) and all(map(is_auto, values.values())):
    return LEFT_TO_RULE
  if is_auto(default):
    default = Duration()
    values = {unit: value for unit, value in values.items() if not is_auto(value)}
  return _group(group, default, values, path)


def _listed(group, values, path):
  if not isinstance(values, (list, tuple)):
    values = (values,)
  _check_length(values, path, MAX_ITEMS)
  for item in values:
    if not isinstance(item, Mapping):
      raise ConfigError(f"{path} holds {shown(item)}; write a list such as {group.example()}.")
  return tuple(_group(group, None, item, f"{path}[{i}]") for i, item in enumerate(values))


def _group(group, default, values, path):
  settings = class_of(group, values, path)
  if type(default) is not settings:
    default = settings()
  return build(default, values, path, group)


def _typed(kind, value, path):
  if kind is float and type(value) is int and abs(value) < MAX_NUMBER:
    return float(value)
  if kind is float and isinstance(value, float) and not math.isfinite(value):
    raise ConfigError(f"{path}={value} is not a finite number; give one.")
  if kind is tuple and isinstance(value, (list, tuple)):
    items = tuple(map(_without_list, value))
    _check_length(items, path, MAX_ITEMS)
    return items
  if kind is Size:
    return _size(value, path)
  if type(value) is not kind:
    name = type(value).__name__
    raise ConfigError(f"{path}={shown(value)} is {name}; it must be {kind.__name__}.")
  if kind is str:
    _check_length(value, path, MAX_TEXT)
  return value


def _size(value, path) -> Size:
  try:
    return as_size(value)
  except (TypeError, ValueError) as error:
    raise ConfigError(
      f"{path}={shown(value)} is no size; give a number of pixels, or (height, width)."
    ) from error


def _without_list(item):
  """An item of a tuple; JSON has lists for tuples."""
  if isinstance(item, list):
    return tuple(item)
  return item


def _check_length(value, path, most):
  if len(value) > most:
    raise ConfigError(f"{path} has a length of {len(value):,}; the most is {most:,}.")


def _check_bounds(value, path, *, meaning, choices, low, high, off, auto, **_):
  if choices and value not in choices:
    raise ConfigError(
      f"{path}={shown(value)} is not a choice ({meaning}); nearest: {similar(value, choices)}."
    )
  if off is not None and value == off:
    return
  also = ""
  if off is not None:
    also += f", or {off:g}"
  if auto:
    also += f", or {AUTO}"
  numbers = value if isinstance(value, tuple) else (value,)
  if low is not None and not all(x >= low for x in numbers):
    raise ConfigError(f"{path}={shown(value)} is too small ({meaning}); the least is {low}{also}.")
  if high is not None and not all(x <= high for x in numbers):
    raise ConfigError(f"{path}={shown(value)} is too large ({meaning}); the most is {high}{also}.")
