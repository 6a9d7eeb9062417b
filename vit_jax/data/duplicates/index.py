"""Finds hashes that differ from a given hash in few bits, without comparing all hashes."""

import itertools

import numpy as np

from vit_jax.data.duplicates.fingerprint import BITS

RADIUS = 8  # bits


class Index:
  """Many hashes of 64 bits, indexed by 5 bands of bits.

  If two hashes differ in at most 8 bits, there is a band in which they differ in at most one bit:
  two bits in each band would be 10. So only hashes with such a band are compared. Needs 28 bytes of
  memory for each hash.
  """

  def __init__(self, hashes: np.ndarray):
    """Sorts the hashes, (N,) uint64, into bands."""
    self._hashes = hashes
    edges = np.linspace(0, BITS, RADIUS // 2 + 2).astype(int)
    self._bands = [_Band(hashes, int(low), int(high)) for low, high in itertools.pairwise(edges)]

  def near(self, sought: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the hashes within the radius of `sought`, ascending, and their distances."""
    rows = np.concatenate([band.candidates(sought) for band in self._bands])
    close = self._distances(rows, sought) <= RADIUS
    rows = np.unique(rows[close])  # a row may be a candidate of several bands
    return rows, self._distances(rows, sought)

  def _distances(self, rows, sought):
    return np.bitwise_count(self._hashes[rows] ^ np.uint64(sought))


class _Band:
  """The bits from `low` to `high` - 1 of all hashes, as a table from value to positions."""

  def __init__(self, hashes, low, high):
    self._low, self._width = low, high - low
    keys = self._key(hashes).astype(np.int64)
    self._order = np.argsort(keys, kind="stable").astype(np.uint32)
    self._ends = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=2**self._width))])

  def _key(self, hashes):
    return (hashes >> np.uint64(self._low)) & np.uint64(2**self._width - 1)

  def candidates(self, sought: int) -> np.ndarray:
    """Positions of hashes whose band differs from that of `sought` in at most one bit."""
    key = int(self._key(np.uint64(sought)))
    keys = [key, *(key ^ (1 << bit) for bit in range(self._width))]
    return np.concatenate([self._order[self._ends[k] : self._ends[k + 1]] for k in keys])
