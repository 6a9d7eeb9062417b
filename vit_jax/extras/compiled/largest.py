"""The largest batch whose step fits into the memory of the devices."""

import math
from collections.abc import Callable

from vit_jax.extras.compiled.compilation import Program

UNIT = 8  # images: a whole number of rows for the matrix units
EVENLY = 5  # programs, after which memory is not taken to grow evenly


def largest(compiled: Callable[[int], Program], first: int) -> tuple[int, Program | None]:
  """The largest number of images for each device that fits, and its program; (0, None): none.

  It is a multiple of 8, or 4, 2 or 1, and the next larger number does not fit. Memory grows nearly
  evenly with the batch, so each program tells how many images seem to fit, and few are compiled.

  Args:
    compiled: from a number of images for each device to their program.
    first: the number to try first.
  """
  tried: dict[int, Program] = {}
  fitting = 0
  refused = math.inf
  batch = rounded(first) or 1
  while after(fitting) < refused:
    tried[batch] = compiled(batch)
    if tried[batch].fits:
      fitting = batch
    else:
      refused = batch
    guess = seeming(tried, batch)
    if len(tried) > EVENLY and refused < math.inf:
      guess = (fitting + refused) / 2
    batch = int(max(after(fitting), min(before(refused), rounded(guess))))
  return fitting, tried.get(fitting)


def seeming(tried: dict[int, Program], batch: int) -> float:
  """How many images seem to fit: on a line through two programs, or in proportion from one."""
  its = tried[batch]
  room = its.usable_bytes - its.peak_bytes
  others = [n for n in tried if n != batch]
  if others:
    nearest = min(others, key=lambda n: abs(n - batch))
    slope = (tried[nearest].peak_bytes - its.peak_bytes) / (nearest - batch)
    if slope > 0:
      return batch + room / slope
  return batch * (1 + room / max(its.temporary_bytes, 1))


def rounded(images: float) -> int:
  """The largest number of images up to this one that is tried; 0: none."""
  if images < 1:
    return 0
  if images < UNIT:
    return 2 ** int(math.log2(images))
  return int(images // UNIT) * UNIT


def after(images: int) -> int:
  """The next larger number that is tried."""
  if images >= UNIT:
    return images + UNIT
  return max(2 * images, 1)


def before(images: float) -> float:
  """The next smaller number that is tried; 0: none."""
  if math.isinf(images):
    return images
  if images > UNIT:
    return rounded(images - UNIT)
  return rounded(images / 2)
