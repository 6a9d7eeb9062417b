"""Finds the largest batch that fits among the powers of two times the first one tried."""

from collections.abc import Mapping


def next_batch(fits: Mapping[int, bool], first: int) -> int | None:
  """The batch to try next; None if the largest one that fits is known.

  Args:
    fits: the batches that were tried, and whether they fit.
    first: the batch to begin with, a power of two.
  """
  if not fits:
    return first
  fitting = [batch for batch, fit in fits.items() if fit]
  if fitting:
    twice = 2 * max(fitting)
    return None if twice in fits else twice
  return min(fits) // 2 or None


def largest(fits: Mapping[int, bool]) -> int | None:
  """The largest batch that fits, 0 if not even one image does; None if that is not known yet."""
  if not fits or next_batch(fits, first=1):
    return None
  return max((batch for batch, fit in fits.items() if fit), default=0)
