"""Pseudo-random permutations of 0..length - 1, computed on demand, one position at a time."""

import math

import numpy as np

_WORD = 2**64 - 1
# SplitMix64: the step between its states and the two factors of its finaliser.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STRETCH = 2**16  # positions computed at a time; their arrays fit in the processor's cache


class Permutation:
  """The order of `length` things that (seed, stream) draws. Needs no memory for any length.

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
    number = self._forth(position)
    while number >= self._length:
      number = self._forth(number)
    return number

  def at(self, positions) -> np.ndarray:
    """The numbers at many positions, as an array of int64."""
    return self._walk(self._forth, positions)

  def find(self, numbers) -> np.ndarray:
    """The positions of many numbers; the inverse of `at`."""
    return self._walk(self._back, numbers)

  def _walk(self, way, numbers) -> np.ndarray:
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
    row, column = number // self._columns, number % self._columns
    for turn, key in enumerate(self._keys):
      if turn % 2:
        column = (column + _mixed(row, key)) % self._columns
      else:
        row = (row + _mixed(column, key)) % self._rows
    return row * self._columns + column

  def _back(self, number):
    row, column = number // self._columns, number % self._columns
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
