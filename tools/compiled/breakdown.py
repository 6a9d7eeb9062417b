"""Where the time of a compiled step goes, by category."""

import collections
from typing import NamedTuple

from compiled import bounds
from compiled.categories import CATEGORIES, Categories
from compiled.instructions import Program
from vit_jax.devices.chips import Chip


class Part(NamedTuple):
  """The instructions of one category in one step of one device.

  Attributes:
    cycles: as the compiler counts them; those of all categories add up to the step's.
    bound_seconds: the sum of the least times of the instructions (`bounds.seconds`).
  """

  category: str
  cycles: int
  bound_seconds: float


def breakdown(text: str, chip: Chip) -> list[Part]:
  """The categories that a step has, in the order of CATEGORIES.

  Only instructions with a count of cycles belong to one: communication and copies that run ahead of
  their use have none.

  Args:
    text: of a program compiled for TPUs.
    chip: its device.
  """
  program = Program(text)
  categories = Categories(program)
  cycles, least = collections.Counter(), collections.Counter()
  for block, times in program.counted.items():
    for one in program.blocks[block]:
      if one.cycles:
        category = categories.of(one)
        cycles[category] += times * one.cycles
        least[category] += times * bounds.seconds(program, one, chip)
  return [Part(name, cycles[name], least[name]) for name in CATEGORIES if name in cycles]
