"""Settings of a run without its devices, and perhaps without its data; imports JAX."""

import functools

from vit_jax.config import Config
from vit_jax.config.data import SIDE
from vit_jax.config.resolve import Facts, left, left_to_rule, resolve
from vit_jax.training.planning import before_devices

UNKNOWN_LENGTH = 10**8  # images, in place of data that is missing
# Settings that determine the cost of a step, or of a run in steps.
OF_COST = frozenset({"model.name", "data.image_size", "batch_size", "duration"})


def decided(config: Config, facts: Facts | None = None) -> Config:
  """The settings with the values that rules decide; made-up data stands in for missing data.

  This is done only for settings that do not affect the cost: crops and flips, and durations in a
  run in epochs. The settings `OF_COST` stay AUTO. The facts are by default those that are known
  without devices.
  """
  facts = before_devices(config) if facts is None else facts
  unknown = OF_COST.intersection(left(resolve(config, facts)))
  made_up = {"images": lambda config: UNKNOWN_LENGTH, "side": lambda config: SIDE}
  return functools.reduce(left_to_rule, unknown, resolve(config, {**made_up, **facts}))
