"""Lets a recipe look up its tables by settings that the command line may replace.

If a recipe's `get_config` has the parameter `replace`, it gets a function that replaces settings
by those of the command line, and calls it before it looks into its tables. The command line can
still replace the values found there. A value that follows from settings in the same way in every
run needs none of this: it is left AUTO.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from vit_jax.config import AUTO, Config, ConfigError
from vit_jax.config.fields import is_auto
from vit_jax.config.resolve import value_of

BATCH = 256  # images, for which papers give a learning rate

Replace = Callable[[Config], Config]


def unchanged(config: Config) -> Config:
  """The settings of a command line that replaces none."""
  return config


def given(config: Config, key: str) -> Any:
  """The value of a setting that a recipe derives others from.

  Args:
    config: the settings, with those of the command line.
    key: of the setting.

  Raises:
    ConfigError: it is left to its rule, which is applied later.
  """
  value = value_of(config, key)
  if is_auto(value):
    raise ConfigError(
      f"config.{key}={AUTO} does not suit this recipe, which derives other settings from it; give "
      "a value, or leave it out."
    )
  return value


def with_rate_of_batch(recipe: Config, rate: float, replace: Replace) -> Config:
  """The recipe, with a learning rate in proportion to its batch size.

  Args:
    recipe: all other settings.
    rate: learning rate for 256 images.
    replace: as of `get_config`.

  Raises:
    ConfigError: the command line leaves the batch size to its rule.
  """
  batch_size = given(replace(recipe), "batch_size")
  schedule = dataclasses.replace(recipe.schedule, learning_rate=rate * batch_size / BATCH)
  return dataclasses.replace(recipe, schedule=schedule)
