"""The endless order of training examples from several sources, mixed by weight.

The stream is cut into blocks of 1,000 to 10,000 positions. In each block every source has its
share of the positions, at random places. Each source is read in its own endless order of epochs, so
none of its examples comes again before all its others came.
"""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from vit_jax.data import order
from vit_jax.data.permutation import Permutation

_LEAST, _MOST = 1_000, 10_000  # positions in a block


class MixedSource(NamedTuple):
  """A source of a mix: its number of examples, and its weight."""

  examples: int
  weight: float


def epochs(parts: Sequence[MixedSource], *, seed: int) -> Callable[[range], Sequence[int]]:
  """The stream of a run on one source or on several, a function of the seed and the position.

  Args:
    parts: the sources. One alone has the order of `order.epochs`, whatever its weight.
    seed: as for `order.epochs`.

  Returns:
    Function from consecutive positions in the stream to the examples there, as rows of all sources
    one after the other; picklable.
  """
  if len(parts) == 1:
    return order.epochs(parts[0].examples, seed=seed)
  of_places, *of_parts = np.random.SeedSequence(seed).generate_state(len(parts) + 1).tolist()
  streams = tuple(
    order.epochs(part.examples, seed=own) for part, own in zip(parts, of_parts, strict=True)
  )
  first_rows = np.cumsum([0, *(part.examples for part in parts)])[:-1]
  weights = whole_weights([part.weight for part in parts])
  return functools.partial(
    _rows, streams=streams, first_rows=first_rows, weights=weights, seed=of_places
  )


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
  """The smallest whole numbers in the proportion of the weights, which are exact decimals.

  For example, (0.1, 0.3) gives (1, 3).
  """
  exact = [Fraction(str(weight)) for weight in weights]
  scale = math.lcm(*(weight.denominator for weight in exact))
  numbers = [int(weight * scale) for weight in exact]
  common = math.gcd(*numbers)
  return tuple(number // common for number in numbers)


def block_size(weights: Sequence[int]) -> int:
  """Positions in a block: if possible, so many that the share of each source is a whole number."""
  period = sum(weights)
  return period * -(-_LEAST // period) if period <= _MOST else _MOST


def taken(positions: int, weights: Sequence[int]) -> list[int]:
  """How many of the first positions each source has; the sum is `positions`.

  The first source gets its share, rounded down; the second its share of what is left, and so on.
  No count falls when `positions` grows, so whole blocks can be counted one by one. The error of a
  count is below the number of sources, for a stream of any length.
  """
  counts, total = [], sum(weights)
  for weight in weights:
    count = positions * weight // total
    counts.append(count)
    positions, total = positions - count, total - weight
  return counts


def _rows(positions: range, *, streams, first_rows, weights, seed: int) -> list[int]:
  size = block_size(weights)
  first, last = positions[0] // size, positions[-1] // size
  sources = np.concatenate(
    [_sources(block, size, weights, seed) for block in range(first, last + 1)]
  )
  at = positions[0] - first * size
  before, here = sources[:at], sources[at : at + len(positions)]
  rows, counts = np.empty(len(positions), np.int64), taken(first * size, weights)
  for number in np.unique(here).tolist():
    mine = here == number
    begin = counts[number] + int(np.sum(before == number))
    own = streams[number](range(begin, begin + int(mine.sum())))
    rows[mine] = first_rows[number] + np.asarray(own)
  return rows.tolist()


@functools.lru_cache(maxsize=8)  # the threads that read ahead need few blocks at a time
def _sources(block: int, size: int, weights: tuple[int, ...], seed: int) -> np.ndarray:
  """The number of the source at each position of a block, (size,)."""
  counts = np.subtract(*(taken(size * end, weights) for end in (block + 1, block)))
  sources = np.repeat(np.arange(len(weights)), counts)
  return sources[Permutation(size, seed=seed, stream=block).at(range(size))]
