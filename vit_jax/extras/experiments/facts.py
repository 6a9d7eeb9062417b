"""What is known of a run without its devices, and perhaps without its data; imports JAX."""

import functools

from vit_jax.config import Config
from vit_jax.config.data import SIDE
from vit_jax.config.resolve import Facts, left, left_to_rule, resolve

UNKNOWN_LENGTH = 10**8  # images, in place of data that is missing
# What the cost of a step, and of a run in steps, follows from.
OF_COST = frozenset({"model.name", "data.image_size", "batch_size", "duration"})


def decided(config: Config, facts: Facts) -> Config:
  """The settings with what rules decide; made-up data takes the place of missing data.

  It does so where no cost follows from the data: for crops and flips, and for what has a length in
  a run in epochs. The settings `OF_COST` stay AUTO.
  """
  unknown = OF_COST.intersection(left(resolve(config, facts)))
  made_up = {"images": lambda config: UNKNOWN_LENGTH, "side": lambda config: SIDE}
  return functools.reduce(left_to_rule, unknown, resolve(config, {**made_up, **facts}))
