"""Refuses settings that are not at their default and have no effect with the others.

The user would think that they matter to the experiment.
"""

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

from vit_jax.config.fields import AUTO, group_in
from vit_jax.config.run import Config
from vit_jax.config.suggestions import has
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import shown


class Changed(NamedTuple):
  """A setting that is not at its default; its conditions are those of `fields.setting`."""

  key: str
  value: Any
  default: Any
  used_if: tuple


def check(asked: Config, config: Config):
  """Refuses settings without effect.

  Args:
    asked: the settings as they were given.
    config: the same, with what they leave to rules.

  Raises:
    ConfigError: names the setting, and the one that makes it useless.
  """
  for setting in changed(asked, Config()):
    for condition in setting.used_if:
      if not _holds(condition, config):
        _refuse(setting, condition, config)


def _holds(condition: tuple, config: Config) -> bool:
  """Whether a condition holds; one on a setting that is AUTO is checked later, with its value."""
  other, *values = condition
  cause = operator.attrgetter(other)(config)
  if cause == AUTO:
    return True
  if values:
    return cause in values
  return bool(cause)


def _refuse(setting: Changed, condition: tuple, config: Config):
  other, *values = of_kinds(condition)
  cause = operator.attrgetter(other)(config)
  if values:
    because = f"with config.{other}={shown(cause)}"
    remedy = f"--config.{other}={values[0]}"
  else:
    because = f"without config.{other}"
    remedy = f"--config.{other} too"
  raise ConfigError(
    f"config.{setting.key}={shown(setting.value)} has no effect {because}; give {remedy}, or leave "
    f"config.{setting.key} at {shown(setting.default)}."
  )


def of_kinds(condition: tuple) -> tuple:
  """The condition, with an attribute of a group's class replaced by the kinds that have it true.

  So ("objective.trains_head",) becomes ("objective.kind", "classification"). A condition on a
  setting, such as ("optimizer.weight_decay",), stays as it is.
  """
  key, *values = condition
  path, _, name = key.rpartition(".")
  groups = {field.name: group_in(field) for field in dataclasses.fields(Config)}
  group = groups.get(path)
  if values or group is None or not group.default or has(group.settings(group.default), name):
    return condition
  return f"{path}.kind", *(kind for kind, of_kind in group.classes() if getattr(of_kind, name))


def changed(group, default, path: str = "", used_if: tuple = ()) -> Iterator[Changed]:
  """Yields the settings of a group that differ from those of `default`, and of groups in it."""
  for field in dataclasses.fields(group):
    value = getattr(group, field.name)
    usual = getattr(default, field.name)
    if dataclasses.is_dataclass(value) and type(value) is not type(usual):
      usual = type(value)()  # of another kind
    conditions = (*used_if, *field.metadata.get("used_if", ()))
    if dataclasses.is_dataclass(value):
      yield from changed(value, usual, f"{path}{field.name}.", conditions)
    elif value != field.metadata.get("usual") and not is_off(value, usual):
      yield Changed(f"{path}{field.name}", value, usual, conditions)


def is_off(value, usual) -> bool:
  """Whether a setting is at its default; one that has a rule may also be switched off."""
  return value in (usual, AUTO) or (usual == AUTO and not value)
