"""What recipes derive from settings that the command line may replace.

A recipe whose `get_config` has the parameter `replace` gets the function that puts the settings of
the command line in the place of its own. It calls this before it derives settings from others. The
command line has the last word on these too.
"""

from collections.abc import Callable

from vit_jax.config import Config, Duration

Replace = Callable[[Config], Config]


def unchanged(config: Config) -> Config:
  """The settings of a command line that replaces none."""
  return config


def fraction(whole: Duration, parts: int) -> Duration:
  """One of so many equal parts of a length, in its unit; whole steps and examples, at least one."""
  count = lambda number: max(1, round(number / parts)) if number else 0
  return Duration(count(whole.steps), whole.epochs / parts, count(whole.examples))
