"""Lets a recipe look up its tables by settings that the command line may replace.

If a recipe's `get_config` has the parameter `replace`, it gets a function that replaces settings
by those of the command line, and calls it before it looks into its tables. The command line can
still replace the values found there. A value that follows from settings in the same way in every
run needs none of this: it is left AUTO.
"""

from collections.abc import Callable

from vit_jax.config import Config

Replace = Callable[[Config], Config]


def unchanged(config: Config) -> Config:
  """The settings of a command line that replaces none."""
  return config
