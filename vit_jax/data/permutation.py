"""Pseudo-random permutations of 0..length - 1 that are computed where they are asked for."""

import math

import numpy as np

_WORD = 2**64 - 1
# SplitMix64: the step between its states and the two factors of its finaliser.
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_STRETCH = 2**16  # positions computed at a time: their arrays stay in the processor's cache


class Permutation:
  """The order of `length` things that (seed, stream) draws; no memory, whatever the length.

  A Feistel network over pairs of numbers below `_rows` and `_columns`, whose product is `length` or
  little more; a result that is `length` or more is sent through it again until it is less. The
  round function is SplitMix64's. One of `_rows` is even: were both factors odd, every round would
  be an even permutation.

  Args:
    length: at least 1, below 2**62.
    seed, stream: which permutation, both in [0, 2**32). All pairs are independent of one another,
      and so are all lengths.

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
    """What stands at a position.

    Raises:
      IndexError: there is no such position.
    """
    if not 0 <= position < self._length:
      raise IndexError(f"There is no position {position} among {self._length}.")
    found = self._forth(position)
    while found >= self._length:
      found = self._forth(found)
    return found

  def at(self, positions) -> np.ndarray:
    """What stands at each of many positions: an array of int64."""
    return self._walk(self._forth, positions)

  def find(self, numbers) -> np.ndarray:
    """The positions of many numbers: undoes `at`."""
    return self._walk(self._back, numbers)

  def _walk(self, way, numbers) -> np.ndarray:
    numbers = np.asarray(numbers)
    found = np.empty(len(numbers), np.uint64)
    for begin in range(0, len(numbers), _STRETCH):
      stretch = way(numbers[begin : begin + _STRETCH].astype(np.uint64))
      while (outside := stretch >= self._length).any():
        stretch[outside] = way(stretch[outside])
      found[begin : begin + _STRETCH] = stretch
    return found.astype(np.int64)

  # Both ways take an int or an array of uint64.

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
  """Rounds of the network: ten for millions, more for few things.

  A Feistel network of r rounds over halves of h bits is told from a random permutation by some
  2**((r - 4) h) evaluations: Patarin, "Security of Random Feistel Schemes with 5 or more Rounds",
  2004. With these it is more than 2**50 for any length.
  """
  return 8 + 96 // max(length - 1, 2).bit_length()


def _mixed(number, key: int):
  """63 bits that depend on all of `number` and `key`: SplitMix64's, from state `key`."""
  word = number * _STEP + key & _WORD
  word = (word ^ word >> 30) * _FIRST & _WORD
  word = (word ^ word >> 27) * _SECOND & _WORD
  return (word ^ word >> 31) >> 1  # so that adding a row or column does not overflow
