"""Settings that have no effect with the others: a value that is not the default is refused.

The user would take it for a part of the experiment.
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
  """A setting that has not its default, and its conditions, as `used_if` of `fields.setting`."""

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
  for key, value, default, used_if in changed(asked, Config()):
    for condition in used_if:
      other, *values = condition
      cause = operator.attrgetter(other)(config)
      if cause == AUTO or (cause in values if values else cause):
        continue  # what AUTO becomes is known later, and then checked again
      other, *values = of_kinds(condition)
      cause = operator.attrgetter(other)(config)
      because = f"with config.{other}={shown(cause)}" if values else f"without config.{other}"
      remedy = f"--config.{other}={values[0]}" if values else f"--config.{other} too"
      raise ConfigError(
        f"config.{key}={shown(value)} has no effect {because}; give {remedy}, or leave "
        f"config.{key} at {shown(default)}."
      )


def of_kinds(condition: tuple) -> tuple:
  """The condition; what a group's class tells is replaced by the kinds of which it is true.

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
    value, usual = getattr(group, field.name), getattr(default, field.name)
    if dataclasses.is_dataclass(value) and type(value) is not type(usual):
      usual = type(value)()  # of another kind
    conditions = (*used_if, *field.metadata.get("used_if", ()))
    if dataclasses.is_dataclass(value):
      yield from changed(value, usual, f"{path}{field.name}.", conditions)
    elif value != field.metadata.get("usual") and not is_off(value, usual):
      yield Changed(f"{path}{field.name}", value, usual, conditions)


def is_off(value, usual) -> bool:
  """Whether a setting is at its default; what follows from a rule may also be switched off."""
  return value in (usual, AUTO) or (usual == AUTO and not value)
