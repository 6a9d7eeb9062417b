"""How a setting is described: its default, meaning and bounds."""

import dataclasses

# What no machine or experiment wants more of; the rest of the bounds stand with their settings.
MOST_STEPS = 2**31 - 1  # as the optimizers count them

MOST_SIDE = 4096  # pixels, of what a model sees

MOST_PIXELS = 2 * MOST_SIDE  # of a side before something is cut out

MOST_BATCH = 2**20  # images

MOST_NUMBER = 1e38  # which float32 still holds

AUTO = "auto"  # as config.model.compute_dtype

MOST_TEXT = 4096  # characters, as in a path

MOST_ITEMS = 1000  # of a setting that holds several values


def setting(default, meaning, *, choices=(), low=None, high=None, off=None):
  """A dataclass field with its meaning and the values that it may take.

  Args:
    default: its value where none is given.
    meaning: what it is, with its unit.
    choices: all values, where they can be listed.
    low, high: bounds of a number, inclusive; every number has both.
    off: the one value outside of the bounds, which switches something off.
  """
  check = dict(meaning=meaning, choices=choices, low=low, high=high, off=off)
  return dataclasses.field(default=default, metadata=check)


def group(kind, **changes):
  """A field that holds a dataclass of further settings, with some defaults changed."""
  return dataclasses.field(default_factory=lambda: kind(**changes))


def named(meaning):
  """A field that holds any number of groups of settings by name."""
  return dataclasses.field(default_factory=dict, metadata=dict(meaning=meaning))
