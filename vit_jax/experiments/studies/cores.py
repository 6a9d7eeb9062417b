"""Cores of the CPU, divided among runs that are under way at the same time.

Each run has a thread for each core that it sees, and the threads of several runs would wait for one
another.
"""

import itertools
import os
import queue
from collections.abc import Sequence


def divided(cores: Sequence[int], runs: int) -> list[set[int]]:
  """A share for each run: parts that differ by one core at most; all cores if there are too few."""
  if len(cores) < runs:
    return [set(cores)] * runs
  bounds = [index * len(cores) // runs for index in range(runs + 1)]
  return [set(cores[start:end]) for start, end in itertools.pairwise(bounds)]


def shares(runs: int) -> queue.SimpleQueue[set[int]]:
  """The shares of this process's cores; empty sets on systems that cannot bind threads to cores."""
  cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
  found = queue.SimpleQueue()
  for share in divided(cores, runs):
    found.put(share)
  return found


def take(shares: queue.SimpleQueue[set[int]]):
  """Binds this thread to the next share; processes that it starts inherit the binding."""
  if share := shares.get():
    os.sched_setaffinity(0, share)
