"""Orders of examples: the endless stream of a run."""

import functools
from collections.abc import Callable, Sequence

from vit_jax.data.permutation import Permutation


def epochs(length: int, *, seed: int) -> Callable[[range], Sequence[int]]:
  """The stream of a run; every epoch has its own order.

  Args:
    length: examples in an epoch.
    seed: in [0, 2**32).

  Returns:
    Function from consecutive positions in the stream to the examples there; picklable.
  """
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
