"""Seconds of a call."""

import statistics
import time
from collections.abc import Callable


def median_seconds(
  function: Callable, *, warm_up: int = 2, calls: int = 10, enough: float = 5.0
) -> float:
  """The median seconds of a call; of fewer calls once `enough` seconds are spent."""
  for _ in range(warm_up):
    function()
  times = []
  while len(times) < calls and sum(times) < enough:
    begin = time.perf_counter()
    function()
    times.append(time.perf_counter() - begin)
  return statistics.median(times)
