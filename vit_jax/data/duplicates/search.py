"""Searches known images for the originals of copies, without comparing all pairs."""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.data.duplicates.compare import copies
from vit_jax.data.duplicates.fingerprint import (
  BITS,
  KNOWN_VIEWS,
  SOUGHT_VIEWS,
  Fingerprint,
  hashes,
)

RADIUS = 8  # bits
_MAX_ORIGINALS = 10  # reported for an image; one is enough to exclude it


class Known(NamedTuple):
  """A known image, of which other images may be copies.

  Attributes:
    place: (number of its source, its index in the source).
    fingerprint: its fingerprint.
    hashes: (25,) uint64, the hashes of its views.
  """

  place: tuple[int, int]
  fingerprint: Fingerprint
  hashes: np.ndarray

  @classmethod
  def of(cls, place: tuple[int, int], fingerprint: Fingerprint) -> "Known":
    """A known image with the hashes of all views."""
    return cls(place, fingerprint, hashes(fingerprint.thumbnail, KNOWN_VIEWS))


class Search:
  """Finds copies of the known images; needs about 4 KB of memory for each of them."""

  def __init__(self, known: Iterable[Known]):
    """Builds the index of the known images' hashes."""
    self._known: Sequence[Known] = list(known)
    all_hashes = [image.hashes for image in self._known]
    self._index = Index(np.concatenate(all_hashes) if all_hashes else np.zeros(0, np.uint64))

  def copied(self, sought: Fingerprint) -> dict[tuple[int, int], float]:
    """{place: concordance} of at most 10 known images of which `sought` is a copy."""
    originals = {}
    for number, sought_cut, known_cut in self._candidates(sought):
      known = self._known[number]
      if known.place not in originals:
        likeness = copies(sought, sought_cut, known.fingerprint, known_cut)
        if likeness:
          originals[known.place] = likeness
      if len(originals) == _MAX_ORIGINALS:
        break
    return originals

  def _candidates(self, sought: Fingerprint):
    """Yields (number of a known image, the two similar views) for pairs of views, nearest first."""
    pairs = []
    for cut, sought_hash in zip(SOUGHT_VIEWS, hashes(sought.thumbnail, SOUGHT_VIEWS), strict=True):
      rows, distances = self._index.near(int(sought_hash))
      pairs += zip(distances.tolist(), rows.tolist(), [cut] * len(rows), strict=True)
    for _, row, cut in sorted(pairs):
      number, view = divmod(row, len(KNOWN_VIEWS))
      yield number, cut, KNOWN_VIEWS[view]


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
