"""Seconds of a call."""

import statistics
import time
from collections.abc import Callable

WARM_UP = 2  # calls that are not measured


def median_seconds(function: Callable, *, calls: int = 10, enough: float = 5.0) -> float:
  """The median seconds of a call; of fewer calls once `enough` seconds are spent."""
  for _ in range(WARM_UP):
    function()
  times = []
  while len(times) < calls and sum(times) < enough:
    begin = time.perf_counter()
    function()
    times.append(time.perf_counter() - begin)
  return statistics.median(times)
