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


def setting(default, meaning, *, choices=(), low=None, high=None, off=None, used_if=()):
  """A dataclass field with its meaning and its allowed values.

  Args:
    default: value if none is given.
    meaning: description, with the unit.
    choices: all allowed values, if they can be listed.
    low, high: bounds of a number, inclusive; every number has both.
    off: the only value allowed outside the bounds; it switches something off.
    used_if: conditions without which the setting has no effect (vit_jax/config/unused.py). Each is
      (key of another setting, *values): the other must have one of the values, or, without values,
      must not be 0, False or empty.
  """
  check = dict(meaning=meaning, choices=choices, low=low, high=high, off=off, used_if=used_if)
  return dataclasses.field(default=default, metadata=check)


def group(kind, *, used_if=(), **changes):
  """A field that holds a dataclass of further settings, with some defaults changed.

  `used_if`, as for `setting`, holds for each setting of the group.
  """
  return dataclasses.field(default_factory=lambda: kind(**changes), metadata=dict(used_if=used_if))


def named(meaning):
  """A field that holds any number of groups of settings by name."""
  return dataclasses.field(default_factory=dict, metadata=dict(meaning=meaning))
