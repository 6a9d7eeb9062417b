"""Recipes by name, as the command line gives them: configs/NAME.py[:ARG]."""

import os
import runpy
from collections.abc import Iterable

from absl import flags
from ml_collections import config_flags

from vit_jax.config import (
  Config,
  ConfigError,
  command_line,
  from_dict,
  missing_recipe,
  replace_units,
  to_config_dict,
)


def choice(argument: str, *known: int | str) -> int | str:
  """What stands after the colon of --config=configs/NAME.py:ARG, as the one of `known` it names.

  Raises:
    ConfigError: it is none of `known`.
  """
  named = {str(value): value for value in known}
  if argument not in named:
    raise ConfigError(f"The recipe's argument {argument!r} is none of {', '.join(named)}.")
  return named[argument]


def load(recipe: str) -> Config:
  """The config of a recipe as the command line names it, configs/NAME.py or configs/NAME.py:ARG.

  Raises:
    ConfigError: there is no such recipe, or it cannot be run with this argument.
  """
  path, _, argument = recipe.partition(":")
  if not os.path.exists(path):
    raise ConfigError(missing_recipe(path))
  try:
    get_config = runpy.run_path(path)["get_config"]
    return from_dict(get_config(*filter(None, [argument])).to_dict())
  except ConfigError:
    raise
  except Exception as error:  # a recipe is a program of the user's: anything can go wrong in it
    raise ConfigError(f"{recipe} is no recipe: {type(error).__name__}: {error}.") from error


def resolve(recipe: str, overrides: Iterable[str]) -> Config:
  """The config of a run, as the main job makes it of its command line.

  Raises:
    ConfigError: there is no such recipe, or a setting is wrong.
  """
  config = to_config_dict(load(recipe))
  argv, values = ["vit_jax", *overrides], flags.FlagValues()
  try:
    config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=argv)
    values(argv)
    overridden = list(config_flags.get_override_values(values["config"]))
  # The library raises what its parts happen to: AttributeError for an unknown key, among others.
  except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
    raise ConfigError(command_line.wrong_usage(argv, error)) from error
  return from_dict(replace_units(values.config.to_dict(), overridden))
