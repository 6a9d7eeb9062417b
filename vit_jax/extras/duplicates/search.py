"""Searches known images for the originals of copies, without comparing all pairs.

Images whose hashes differ in few bits are candidates; their views decide.

A copy has the brightness, the contrast and the shapes of its original. Therefore views are compared
by their concordance, Lin's coefficient, which is lower than the correlation if means or variances
differ: unrelated images of one edge, or flat windows of one sky, correlate up to 0.98. Details are
compared by their correlation, because different images may have the same layout. Details that
differ by less than one grey level are ignored, because encoding an image changes it that much.

This cannot distinguish drawings of few strokes: different digits of 8 x 8 pixels correlate up to
0.994, better than many of them with their own JPEG of quality 50. Therefore, if the smaller side
has fewer than 32 pixels, only images with exactly the same pixels count as copies.
docs/duplicates.md has the fractions of copies found and of false copies, by size and contrast.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.fft

from vit_jax.extras.duplicates.fingerprint import (
  BITS,
  KNOWN_VIEWS,
  SOUGHT_VIEWS,
  VIEW,
  Fingerprint,
  hashes,
  view,
)

SMALLEST = 32  # pixels; for smaller images only exact copies count
LIKE = 0.85  # least concordance of the views of copies
DETAILS_LIKE = 0.45  # least correlation of their details
FAINT = 1.0  # grey levels, root mean square; a smaller difference of details is ignored

_DETAILS = (6, 16)  # range of frequencies on each axis
_RIM = 1  # pixels at the edge of a view, which may show what the other image does not have
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
    none = np.zeros(0, np.uint64)
    self._index = Index(np.concatenate([none, *(image.hashes for image in self._known)]))

  def copied(self, sought: Fingerprint) -> dict[tuple[int, int], float]:
    """{place: concordance} of at most 10 known images of which `sought` is a copy."""
    originals = {}
    for number, sought_cut, known_cut in self._candidates(sought):
      known = self._known[number]
      if known.place in originals:
        continue
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
      number, place = divmod(row, len(KNOWN_VIEWS))
      yield number, cut, KNOWN_VIEWS[place]


class Index:
  """Many hashes of 64 bits, indexed by 5 bands of bits.

  If two hashes differ in at most 8 bits, they differ in at most one bit in some band, because two
  bits in each band would be 10. So only hashes with such a band are compared. Needs 28 bytes of
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
    self._low = low
    self._width = high - low
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


def copies(sought: Fingerprint, sought_cut, known: Fingerprint, known_cut) -> float:
  """Concordance of two images if one is a copy of the other, else 0.

  Args:
    sought, known: the images.
    sought_cut, known_cut: their views with nearly equal hashes.
  """
  if sought.digest == known.digest:
    return 1.0
  if min(sought.side, known.side) < SMALLEST:
    return 0.0
  sought_view = view(sought.thumbnail, sought_cut)
  known_view = view(known.thumbnail, known_cut)
  whole, details = likeness(sought_view, known_view)
  if whole >= LIKE and details >= DETAILS_LIKE:
    return whole
  return 0.0


def likeness(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
  """Concordance of two views inside their rims, and correlation of their details (1 if faint)."""
  inner = slice(_RIM, VIEW - _RIM)
  whole = concordance(first[inner, inner], second[inner, inner])
  first_details = details_of(first)
  second_details = details_of(second)
  # By Parseval's theorem this is the root mean square over pixels.
  difference = np.sqrt(((first_details - second_details) ** 2).sum()) / VIEW
  if difference <= FAINT:
    return whole, 1.0
  return whole, correlation(first_details, second_details)


def concordance(first: np.ndarray, second: np.ndarray) -> float:
  """Lin's coefficient: 1 if the images are equal, 0 if one of them is constant.

  Source: Lin, "A concordance correlation coefficient to evaluate reproducibility", 1989.
  """
  spread = float(first.var() + second.var() + (first.mean() - second.mean()) ** 2)
  together = float(((first - first.mean()) * (second - second.mean())).mean())
  if spread > 1e-6:
    return 2 * together / spread
  return 0.0


def correlation(first: np.ndarray, second: np.ndarray) -> float:
  """Pearson's coefficient; 0 if one of the images is constant."""
  first = first - first.mean()
  second = second - second.mean()
  scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
  if scale > 1e-6:
    return float((first * second).sum()) / scale
  return 0.0


def details_of(image: np.ndarray) -> np.ndarray:
  """The frequencies that distinguish a copy from another image with the same layout."""
  low, high = _DETAILS
  frequency = np.maximum(*np.mgrid[:VIEW, :VIEW])
  return scipy.fft.dctn(image, norm="ortho")[(frequency >= low) & (frequency < high)]
