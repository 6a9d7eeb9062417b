"""Seconds of a call, and whether one failed for lack of memory; imports no JAX."""

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


def lacks_memory(error: Exception) -> bool:
  """Whether an error says that memory is too small, as that of the matmul library on CPUs."""
  words = f"{type(error).__name__}: {error}"
  lacking = out_of_memory(words) or "YNNPACK operation failed" in words
  return lacking or isinstance(error, MemoryError)


def out_of_memory(error: str) -> bool:
  """Whether an error says that the memory of a device is too small."""
  return "RESOURCE_EXHAUSTED" in error or "out of memory" in error.lower()
