"""Recipes by name, as the command line gives them: configs/NAME.py[:ARG]."""

import os
import runpy

from vit_jax.config import Config, ConfigError, from_dict, missing_recipe


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
