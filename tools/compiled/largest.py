"""The largest batch whose step fits into the memory of the devices."""

import math
from collections.abc import Callable

from compiled.compilation import Program

UNIT = 8  # images: a whole number of rows for the matrix units


def largest(compiled: Callable[[int], Program], first: int) -> tuple[int, Program | None]:
  """The largest number of images for each device that fits, and its program; (0, None): none.

  It is a multiple of 8, or 4, 2 or 1. The memory grows almost evenly with the batch, so few
  programs are compiled: the line through the last two tells which one to try next. It ends where
  one fits, and the next larger one was tried or is too large by the line.

  Args:
    compiled: from a number of images for each device to their program.
    first: the number to try first.
  """
  tried: dict[int, Program] = {}
  batch = rounded(first) or 1
  while batch and batch not in tried:
    tried[batch] = compiled(batch)
    batch = _next(tried)
  fitting = [n for n, program in tried.items() if program.fits]
  return (max(fitting), tried[max(fitting)]) if fitting else (0, None)


def rounded(images: float) -> int:
  """The largest number of images up to this one that is tried; 0: none."""
  if images < UNIT:
    return 2 ** int(math.log2(images)) if images >= 1 else 0
  return int(images // UNIT) * UNIT


def _next(tried: dict[int, Program]) -> int:
  """The number to try next; one that was tried: there is none."""
  below = max((n for n, program in tried.items() if program.fits), default=0)
  above = min((n for n, program in tried.items() if not program.fits), default=math.inf)
  most = rounded(_by_line(tried))
  if above < math.inf:
    most = min(most, rounded(above - UNIT if above > UNIT else above / 2))
  # Where nothing fits, XLA has computed again what it could, and the line may be too flat.
  least = below or rounded(above / 2)
  return max(most, least)


def _by_line(tried: dict[int, Program]) -> float:
  """How many images fit, by two programs; by one alone, if all temporaries are the images'.

  They are the last one, and the nearest to the limit on its other side, or else the one before.
  """
  *before, (batch, last) = tried.items()
  room = last.usable_bytes - last.peak_bytes
  if not before:
    return batch + room * batch / max(last.temporary_bytes, 1)
  across = [one for one in before if one[1].fits != last.fits] or before[-1:]
  other, program = min(across, key=lambda one: abs(one[0] - batch))
  return batch + room / max((last.peak_bytes - program.peak_bytes) / (batch - other), 1)
