"""How a setting is described: its default, meaning and bounds."""

import dataclasses

# Upper bounds that several settings share; other bounds are given with their settings.
MOST_STEPS = 2**31 - 1  # optimizers count steps in int32

MOST_SIDE = 4096  # pixels, side of a model's input

MOST_PIXELS = 2 * MOST_SIDE  # side of an image before it is cropped

MOST_BATCH = 2**20  # images

MOST_NUMBER = 1e38  # float32 can hold it

AUTO = "auto"  # a value of config.model.compute_dtype

MOST_TEXT = 4096  # characters, the longest path

MOST_ITEMS = 1000  # values in one setting


def setting(default, meaning, *, choices=(), low=None, high=None, off=None):
  """A dataclass field with its meaning and its allowed values.

  Args:
    default: value if none is given.
    meaning: description, with the unit.
    choices: all allowed values, if they can be listed.
    low, high: bounds of a number, inclusive; every number has both.
    off: the only value allowed outside the bounds; it switches something off.
  """
  check = dict(meaning=meaning, choices=choices, low=low, high=high, off=off)
  return dataclasses.field(default=default, metadata=check)


def group(kind, **changes):
  """A field that holds a dataclass of further settings, with some defaults changed."""
  return dataclasses.field(default_factory=lambda: kind(**changes))


def named(meaning):
  """A field that holds any number of groups of settings by name."""
  return dataclasses.field(default_factory=dict, metadata=dict(meaning=meaning))
