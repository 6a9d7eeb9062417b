"""The endless order of training examples, of one source or of several that are mixed by weight.

Each source is read in its own endless order of epochs, so no example comes again before all others
of its source. The stream of a mix is cut into blocks of 1,000 to 10,000 positions. In each block
every source has its share of the positions, at random places.

An epoch is a pseudo-random permutation of 0..length - 1, computed one position at a time.

Drawn evenly, the classes of a source are a mix of their own: all have the same weight, and each has
its own epochs.
"""

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

_WORD = 2**64 - 1
# SplitMix64: the step between its states and the two factors of its finaliser.
_STEP = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_STRETCH = 2**16  # positions computed at a time; their arrays fit in the processor's cache
_FEW = 32  # fewer numbers are computed faster one by one than as an array


class Permutation:
  """A pseudo-random order of `length` things, drawn by (seed, stream); needs no memory.

  A Feistel network over pairs of numbers below `_rows` and `_columns`. The product of these two is
  `length` or slightly more. A result of `length` or more is sent through the network again until it
  is smaller. The round function is SplitMix64's. `_rows` is even, because every round would be an
  even permutation if both factors were odd.

  Args:
    length: at least 1, below 2**62.
    seed, stream: select the permutation; both in [0, 2**32). The permutations of different pairs,
      and of different lengths, are independent.

  Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002: the generalised Feistel
  cipher and cycle walking; Steele et al., "Fast Splittable Pseudorandom Number Generators", 2014.
  """

  def __init__(self, length: int, *, seed: int, stream: int = 0):
    self._length = length
    self._rows = 2 * (math.isqrt(length - 1) // 2 + 1)  # even, and at least the square root
    self._columns = -(-length // self._rows)
    keys = np.random.SeedSequence((seed, stream, length)).generate_state(rounds(length), np.uint64)
    self._keys = keys.tolist()

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, position: int) -> int:
    """The number at a position.

    Raises:
      IndexError: there is no such position.
    """
    if not 0 <= position < self._length:
      raise IndexError(f"There is no position {position} among {self._length}.")
    return self._walk_one(self._forth, position)

  def at(self, positions) -> np.ndarray:
    """The numbers at many positions, as an array of int64."""
    return self._walk(self._forth, positions)

  def find(self, numbers) -> np.ndarray:
    """The positions of many numbers; the inverse of `at`."""
    return self._walk(self._back, numbers)

  def _walk_one(self, way, number: int) -> int:
    number = way(number)
    while number >= self._length:
      number = way(number)
    return number

  def _walk(self, way, numbers) -> np.ndarray:
    if len(numbers) < _FEW:
      return np.array([self._walk_one(way, int(number)) for number in numbers], np.int64)
    numbers = np.asarray(numbers)
    results = np.empty(len(numbers), np.uint64)
    for begin in range(0, len(numbers), _STRETCH):
      stretch = way(numbers[begin : begin + _STRETCH].astype(np.uint64))
      while (outside := stretch >= self._length).any():
        stretch[outside] = way(stretch[outside])
      results[begin : begin + _STRETCH] = stretch
    return results.astype(np.int64)

  # `_forth` and `_back` take an int or an array of uint64.

  def _forth(self, number):
    row = number // self._columns
    column = number % self._columns
    for turn, key in enumerate(self._keys):
      if turn % 2:
        column = (column + _mixed(row, key)) % self._columns
      else:
        row = (row + _mixed(column, key)) % self._rows
    return row * self._columns + column

  def _back(self, number):
    row = number // self._columns
    column = number % self._columns
    for turn, key in reversed([*enumerate(self._keys)]):
      if turn % 2:
        column = (column + self._columns - _mixed(row, key) % self._columns) % self._columns
      else:
        row = (row + self._rows - _mixed(column, key) % self._rows) % self._rows
    return row * self._columns + column


def rounds(length: int) -> int:
  """Rounds of the network: about twelve for millions of things, more for fewer.

  It takes some 2**((r - 4) h) evaluations to distinguish a Feistel network of r rounds over halves
  of h bits from a random permutation: Patarin, "Security of Random Feistel Schemes with 5 or more
  Rounds", 2004. With these rounds it takes more than 2**50 for any length.
  """
  return 8 + 96 // max(length - 1, 2).bit_length()


def _mixed(number, key: int):
  """63 bits that depend on all bits of `number` and `key`: SplitMix64, from state `key`."""
  word = number * _STEP + key & _WORD
  word = (word ^ word >> 30) * _FIRST & _WORD
  word = (word ^ word >> 27) * _SECOND & _WORD
  return (word ^ word >> 31) >> 1  # 63 bits, so that adding a row or column does not overflow


_MIN_BLOCK = 1_000  # positions
_MAX_BLOCK = 10_000


class MixedSource(NamedTuple):
  """A source of a mix.

  Attributes:
    examples: their number.
    weight: in the mix.
    classes: the rows of each class, none of them empty, if classes are drawn equally often; ():
      examples are.
  """

  examples: int
  weight: float
  classes: Sequence[np.ndarray] = ()


def stream(
  parts: Sequence[MixedSource], *, seed: int, repeats: int = 1
) -> Callable[[range], Sequence[int]]:
  """The stream of a run, a function of the seed and the position.

  Args:
    parts: the sources. A single one is read in the order of its epochs, whatever its weight.
    seed: in [0, 2**32).
    repeats: positions in a row that have the same example.

  Returns:
    A function from consecutive positions in the stream to the examples there, as rows of all
    sources one after the other.
  """
  if repeats > 1:
    return functools.partial(_repeated, rows=stream(parts, seed=seed), repeats=repeats)
  if len(parts) == 1:
    return _of_one(parts[0], seed)
  places_seed, *seeds = np.random.SeedSequence(seed).generate_state(len(parts) + 1).tolist()
  return functools.partial(
    _mixed_rows,
    streams=[_of_one(source, seed) for source, seed in zip(parts, seeds, strict=True)],
    first_rows=np.cumsum([0, *(source.examples for source in parts)])[:-1],
    weights=whole_weights([source.weight for source in parts]),
    seed=places_seed,
  )


def _of_one(source: MixedSource, seed: int) -> Callable[[range], Sequence[int]]:
  if source.classes:
    return balanced(source.classes, seed=seed)
  return epochs(source.examples, seed=seed)


def balanced(classes: Sequence[np.ndarray], *, seed: int) -> Callable[[range], Sequence[int]]:
  """As `stream`, for one source: a mix of its classes with equal weights.

  Args:
    classes: the rows of each class, none of them empty.
    seed: as for `stream`.
  """
  of_classes = stream([MixedSource(len(rows), 1.0) for rows in classes], seed=seed)
  return functools.partial(_looked_up, places=of_classes, rows=np.concatenate(classes))


def epochs(length: int, *, seed: int) -> Callable[[range], Sequence[int]]:
  """As `stream`, for one source of `length` examples; every epoch has its own order."""
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
  """Positions in a block: if possible, a number that gives each source a whole share."""
  period = sum(weights)
  if period > _MAX_BLOCK:
    return _MAX_BLOCK
  return period * -(-_MIN_BLOCK // period)


def taken(positions: int, weights: Sequence[int]) -> list[int]:
  """How many of the first `positions` positions each source has; their sum is `positions`.

  The first source gets its share, rounded down; the second its share of the rest, and so on. No
  count falls when `positions` grows, so whole blocks can be counted one by one. The error of a
  count is below the number of sources, for a stream of any length.
  """
  counts = []
  total = sum(weights)
  for weight in weights:
    count = positions * weight // total
    counts.append(count)
    positions -= count
    total -= weight
  return counts


def _repeated(positions: range, *, rows, repeats: int) -> list[int]:
  first = positions[0] // repeats
  distinct = rows(range(first, positions[-1] // repeats + 1))
  return [distinct[position // repeats - first] for position in positions]


def _looked_up(positions: range, *, places, rows: np.ndarray) -> list[int]:
  return rows[np.asarray(places(positions))].tolist()


def _rows(positions: range, *, length: int, seed: int) -> list[int]:
  rows = []
  for epoch in range(positions[0] // length, positions[-1] // length + 1):
    first, end = (min(max(at - epoch * length, 0), length) for at in (positions[0], positions.stop))
    rows += _order_of(length, seed, epoch).at(range(first, end)).tolist()
  return rows


@functools.lru_cache(maxsize=4096)  # the threads that read ahead need few epochs of each source
def _order_of(length: int, seed: int, epoch: int) -> Permutation:
  return Permutation(length, seed=seed, stream=epoch)


def _mixed_rows(positions: range, *, streams, first_rows, weights, seed: int) -> list[int]:
  size = block_size(weights)
  first = positions[0] // size
  last = positions[-1] // size
  sources = np.concatenate(
    [_sources(block, size, weights, seed) for block in range(first, last + 1)]
  )
  at = positions[0] - first * size
  before = sources[:at]
  here = sources[at : at + len(positions)]
  rows = np.empty(len(positions), np.int64)
  counts = taken(first * size, weights)
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
