"""Loads recipes by the names used on the command line: configs/NAME.py[:ARG]."""

import os
from collections.abc import Iterable

from absl import flags
from ml_collections import ConfigDict, config_flags

from vit_jax.config import (
  Config,
  ConfigError,
  command_line,
  from_dict,
  missing_recipe,
  python_file,
  replace_units,
  to_dict,
)


def choice(argument: str, *known: int | str) -> int | str:
  """The value of `known` that ARG names in --config=configs/NAME.py:ARG.

  Raises:
    ConfigError: the argument names none of them.
  """
  named = {str(value): value for value in known}
  if argument not in named:
    raise ConfigError(f"The recipe's argument {argument!r} is none of {', '.join(named)}.")
  return named[argument]


def options(words: Iterable[str], *known: str) -> frozenset[str]:
  """The words after the fixed fields of a recipe's argument, in any order.

  Raises:
    ConfigError: one is not known, or is given twice.
  """
  words = list(words)
  found = frozenset(choice(word, *known) for word in words)
  if len(found) < len(words):
    raise ConfigError(f"The recipe's words {', '.join(words)} hold one twice; give each once.")
  return found


def load(recipe: str) -> Config:
  """The config of a recipe, given as configs/NAME.py or configs/NAME.py:ARG.

  Raises:
    ConfigError: there is no such recipe, or it fails with this argument.
  """
  path, _, argument = recipe.partition(":")
  if not os.path.exists(path):
    raise ConfigError(missing_recipe(path))
  return from_dict(python_file.settings_of(path, argument).to_dict())


def resolve(recipe: str, overrides: Iterable[str]) -> Config:
  """The config of a run, built as the main job builds it from its command line.

  Raises:
    ConfigError: there is no such recipe, or a setting is wrong.
  """
  config = _Silent(to_dict(load(recipe)))
  argv, values = ["vit_jax", *overrides], flags.FlagValues()
  try:
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
    values(argv)
    overridden = list(config_flags.get_override_values(values["config"]))
  # The library passes on many kinds of exceptions, such as AttributeError for an unknown key.
  except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
    raise ConfigError(command_line.wrong_usage(argv, error)) from error
  return from_dict(replace_units(values.config.to_dict(), overridden))


class _Silent(ConfigDict):
  """A config that the library of flags cannot print for its help, which took most of the time."""

  def __str__(self) -> str:
    return "config"
