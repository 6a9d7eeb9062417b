"""Where the time of a compiled step goes, by category."""

from typing import NamedTuple

from vit_jax.devices.chips import Chip
from vit_jax.extras.compiled import bounds
from vit_jax.extras.compiled.categories import CATEGORIES, Categories
from vit_jax.extras.compiled.instructions import Program


class Part(NamedTuple):
  """The instructions of one category in one step of one device.

  Attributes:
    launches: how many instructions run; on a GPU each is a kernel or a copy.
    cycles: as the compiler counts them; those of all categories add up to the step's. 0 on GPUs.
    flops: of the matmuls (`bounds.Bound`).
    moved_bytes: between the device and its memory (`bounds.Bound`).
    bound_seconds: the sum of the least times of the instructions.
  """

  category: str
  launches: int
  cycles: int
  flops: int
  moved_bytes: int
  bound_seconds: float


def breakdown(text: str, chip: Chip) -> list[Part]:
  """The categories that a step has, in the order of CATEGORIES.

  Only instructions that take time of their own belong to one: communication does not, and on TPUs
  neither do copies that run ahead of their use.

  Args:
    text: of a compiled program.
    chip: its device.
  """
  program = Program(text)
  categories = Categories(program)
  totals = {}
  for times, one in program.timed:
    bound = bounds.of(program, one)
    its = (1, one.cycles, bound.flops, bound.moved, bound.seconds(chip))
    before = totals.setdefault(categories.of(one), (0,) * len(its))
    totals[categories.of(one)] = tuple(a + times * b for a, b in zip(before, its, strict=True))
  return [Part(name, *totals[name]) for name in CATEGORIES if name in totals]
