"""The endless order of training examples, of one source or of several that are mixed by weight.

Each source is read in its own endless order of epochs, so none of its examples comes again before
all its others came. The stream of a mix is cut into blocks of 1,000 to 10,000 positions. In each
block every source has its share of the positions, at random places.
"""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from vit_jax.data.permutation import Permutation

_MIN_BLOCK, _MAX_BLOCK = 1_000, 10_000  # positions


class MixedSource(NamedTuple):
  """A source of a mix: its number of examples, and its weight."""

  examples: int
  weight: float


def stream(
  parts: Sequence[MixedSource], *, seed: int, repeats: int = 1
) -> Callable[[range], Sequence[int]]:
  """The stream of a run, a function of the seed and the position.

  Args:
    parts: the sources. One alone has the order of its epochs, whatever its weight.
    seed: in [0, 2**32).
    repeats: positions in a row that have the same example.

  Returns:
    Function from consecutive positions in the stream to the examples there, as rows of all sources
    one after the other.
  """
  if repeats > 1:
    return functools.partial(_repeated, rows=stream(parts, seed=seed), repeats=repeats)
  if len(parts) == 1:
    return epochs(parts[0].examples, seed=seed)
  places_seed, *seeds = np.random.SeedSequence(seed).generate_state(len(parts) + 1).tolist()
  return functools.partial(
    _mixed_rows,
    streams=[epochs(part.examples, seed=seed) for part, seed in zip(parts, seeds, strict=True)],
    first_rows=np.cumsum([0, *(part.examples for part in parts)])[:-1],
    weights=whole_weights([part.weight for part in parts]),
    seed=places_seed,
  )


def epochs(length: int, *, seed: int) -> Callable[[range], Sequence[int]]:
  """As `stream`, of one source of `length` examples; every epoch has its own order."""
  return functools.partial(_rows, length=length, seed=seed)


def unchanged(positions: range) -> Sequence[int]:
  """The stream of examples in their own order."""
  return positions


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
  return period * -(-_MIN_BLOCK // period) if period <= _MAX_BLOCK else _MAX_BLOCK


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


def _repeated(positions: range, *, rows, repeats: int) -> list[int]:
  first = positions[0] // repeats
  once = rows(range(first, positions[-1] // repeats + 1))
  return [once[position // repeats - first] for position in positions]


def _rows(positions: range, *, length: int, seed: int) -> list[int]:
  rows = []
  for epoch in range(positions[0] // length, positions[-1] // length + 1):
    first, end = (min(max(at - epoch * length, 0), length) for at in (positions[0], positions.stop))
    rows += _order_of(length, seed, epoch).at(range(first, end)).tolist()
  return rows


@functools.lru_cache(maxsize=64)  # the threads that read ahead need few epochs of each source
def _order_of(length: int, seed: int, epoch: int) -> Permutation:
  return Permutation(length, seed=seed, stream=epoch)


def _mixed_rows(positions: range, *, streams, first_rows, weights, seed: int) -> list[int]:
  size = block_size(weights)
  first, last = positions[0] // size, positions[-1] // size
  sources = np.concatenate(
    [_sources(block, size, weights, seed) for block in range(first, last + 1)]
  )
  at = positions[0] - first * size
  before, here = sources[:at], sources[at : at + len(positions)]
  rows, counts = np.empty(len(positions), np.int64), taken(first * size, weights)
  for number in np.unique(here).tolist():
    places = here == number
    begin = counts[number] + int(np.sum(before == number))
    of_source = streams[number](range(begin, begin + int(places.sum())))
    rows[places] = first_rows[number] + np.asarray(of_source)
  return rows.tolist()


@functools.lru_cache(maxsize=8)  # the threads that read ahead need few blocks at a time
def _sources(block: int, size: int, weights: tuple[int, ...], seed: int) -> np.ndarray:
  """The number of the source at each position of a block, (size,)."""
  counts = np.subtract(*(taken(size * end, weights) for end in (block + 1, block)))
  sources = np.repeat(np.arange(len(weights)), counts)
  return sources[Permutation(size, seed=seed, stream=block).at(range(size))]
