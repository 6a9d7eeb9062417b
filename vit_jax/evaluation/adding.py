"""Adds up the results of batches on the host, while the devices work on the next batch."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import jax
import numpy as np

Result = TypeVar("Result")


def one_behind(results: Iterable[Result]) -> Iterator[Result]:
  """Yields each result after the next one has been dispatched, so that the devices never wait.

  Args:
    results: dispatches the work on a batch whenever its next item is taken.
  """
  waiting = []
  for result in results:
    yield from waiting
    waiting = [result]
  yield from waiting


def add(totals: dict[str, np.ndarray], sums: dict[str, jax.Array]):
  """Adds one batch's sums to the totals, in place and in float64."""
  for name, value in jax.device_get(sums).items():
    totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
