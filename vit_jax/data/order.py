"""Random orders of examples: the endless stream of a run, and the fixed order of subsets."""

import functools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from vit_jax.data.permutation import Permutation

GRAIN = "grain"  # value of config.data.sampling: Grain's shuffle, which is not uniform


class Order(Protocol):
  """A permutation of the numbers below its length."""

  def __len__(self) -> int: ...

  def __getitem__(self, position: int) -> int: ...

  def find(self, numbers: np.ndarray) -> np.ndarray:
    """The position of each number."""
    ...


def fixed(length: int, *, seed: int, sampling: str) -> Order:
  """An order of `length` things that depends only on the seed.

  Args:
    length: number of things.
    seed: in [0, 2**32).
    sampling: "uniform", or "grain" for the order of releases before 0.2.0.
  """
  if sampling == GRAIN:
    return _Grain(length, seed=seed)
  return Permutation(length, seed=seed)


def epochs(length: int, *, seed: int, sampling: str) -> Callable[[range], Sequence[int]]:
  """The stream of a run; every epoch has its own order.

  Args:
    length: examples in an epoch.
    seed, sampling: as for `fixed`.

  Returns:
    Function from consecutive positions in the stream to the examples there; picklable.
  """
  if sampling == GRAIN:
    return functools.partial(_grain_rows, _grain(length).seed(seed).shuffle().repeat())
  return functools.partial(_rows, length=length, seed=seed)


def unchanged(positions: range) -> Sequence[int]:
  """The stream of examples in their own order."""
  return positions


def _rows(positions: range, *, length: int, seed: int) -> list[int]:
  rows = []
  for epoch in range(positions[0] // length, positions[-1] // length + 1):
    first, end = (min(max(at - epoch * length, 0), length) for at in (positions[0], positions.stop))
    rows += _of_epoch(length, seed, epoch).at(range(first, end)).tolist()
  return rows


@functools.lru_cache(maxsize=64)  # the threads that read ahead need few epochs of each source
def _of_epoch(length: int, seed: int, epoch: int) -> Permutation:
  return Permutation(length, seed=seed, stream=epoch)


# Grain's shuffle is not uniform for some lengths. For 12,400,000 numbers, the first million of the
# order holds 8.9% to 11.0% of each tenth of them; chance gives 10% with a standard deviation of
# 0.03%.


class _Grain:
  """The order that Grain's shuffle draws."""

  def __init__(self, length: int, *, seed: int):
    self._order = _grain(length).shuffle(seed=seed)

  def __len__(self) -> int:
    return len(self._order)

  def __getitem__(self, position: int) -> int:
    return self._order[position]

  def find(self, numbers: np.ndarray) -> np.ndarray:
    """As in `Order`; computes the whole order, which takes 12 us for each number."""
    positions = np.empty(len(self), np.int64)
    positions[_grain_rows(self._order, range(len(self)))] = np.arange(len(self))
    return positions[numbers]


def _grain(length: int):
  import grain  # imported late: it imports JAX, which many users of sources do not need

  return grain.MapDataset.range(length)


def _grain_rows(order, positions: range) -> list[int]:
  return [order[position] for position in positions]
