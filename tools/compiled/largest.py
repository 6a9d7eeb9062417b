"""The largest batch whose step fits into the memory of the devices."""

import math
from collections.abc import Callable

from compiled.compilation import Program

UNIT = 8  # images: a whole number of rows for the matrix units
ABOVE = 1.25  # of what seems to fit: more than XLA gains by computing again
NEAR = 0.95  # a batch is not certainly too large if as large a part of it seems to fit
REFUSED = 3  # batches that are tried from above


def largest(compiled: Callable[[int], Program], first: int) -> tuple[int, Program | None]:
  """The largest number of images for each device that fits, and its program; (0, None): none.

  It is a multiple of 8, or 4, 2 or 1, and the next larger number does not fit. Temporaries grow
  evenly with the batch, so each program tells how many images seem to fit, and few are compiled.

  Near the limit of the memory, XLA computes activations again, more of them for a larger batch: one
  that does not fit may be followed by larger ones that do. So the first tries come from above. If
  they do not fit either, XLA gains too little, and it is the last one where nothing is computed
  again.

  Args:
    compiled: from a number of images for each device to their program.
    first: the number to try first.
  """
  tried: dict[int, Program] = {}

  def fits(images: int) -> bool:
    if images not in tried:
      tried[images] = compiled(images)
    return tried[images].fits

  top = rounded(first) or 1
  while fits(top) or seeming(tried[top], top) > NEAR * top:
    top = max(rounded(ABOVE * seeming(tried[top], top)), after(top))
  batch, tries = top, 0
  while batch and not fits(batch):
    batch = min(rounded(seeming(tried[batch], batch)), before(batch))
    tries += 1
    if tries > REFUSED:
      batch = max((n for n in tried if fits(n)), default=rounded(batch / ABOVE))
  return _upwards(tried, fits, batch) if batch else (0, None)


def _upwards(tried, fits, batch: int) -> tuple[int, Program]:
  """From a number that fits, without trying each: the first after which the next does not."""
  ends = lambda: min(n for n, program in tried.items() if n > batch and not program.fits)
  seems = lambda: rounded(seeming(tried[batch], batch))
  while batch < seems() < ends() and fits(seems()):
    batch = seems()
  while fits(after(batch)):
    batch = after(batch)
    middle = rounded((batch + ends()) / 2)
    if fits(middle):
      batch = middle
  return batch, tried[batch]


def rounded(images: float) -> int:
  """The largest number of images up to this one that is tried; 0: none."""
  if images < UNIT:
    return 2 ** int(math.log2(images)) if images >= 1 else 0
  return int(images // UNIT) * UNIT


def seeming(program: Program, images: int) -> float:
  """How many images seem to fit: all temporaries are taken as in proportion to the images."""
  room = program.usable_bytes - program.argument_bytes
  return images * room / max(program.temporary_bytes, 1)


def after(images: int) -> int:
  """The next larger number that is tried."""
  return images + UNIT if images >= UNIT else 2 * images


def before(images: int) -> int:
  """The next smaller number that is tried; 0: none."""
  return rounded(images - UNIT if images > UNIT else images / 2)
