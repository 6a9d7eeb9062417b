"""What recipes take from tables of their own, by settings that the command line may replace.

A recipe whose `get_config` has the parameter `replace` gets the function that puts the settings of
the command line in the place of its own. It calls this before it looks into its tables. The command
line has the last word on what it finds there. What follows from settings in all runs alike is left
AUTO instead.
"""

from collections.abc import Callable

from vit_jax.config import Config

Replace = Callable[[Config], Config]


def unchanged(config: Config) -> Config:
  """The settings of a command line that replaces none."""
  return config
