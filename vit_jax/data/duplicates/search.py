"""Searches a collection of known images for the originals of copies."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.data.duplicates.compare import copies
from vit_jax.data.duplicates.fingerprint import KNOWN_VIEWS, SOUGHT_VIEWS, Fingerprint, hashes
from vit_jax.data.duplicates.index import Index

_MAX_ORIGINALS = 10  # originals reported for an image; one is enough to exclude the image


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
    all_hashes = [one.hashes for one in self._known]
    self._index = Index(np.concatenate(all_hashes) if all_hashes else np.zeros(0, np.uint64))

  def copied(self, sought: Fingerprint) -> dict[tuple[int, int], float]:
    """{place: concordance} of at most 10 known images of which `sought` is a copy."""
    found = {}
    for number, sought_cut, known_cut in self._candidates(sought):
      one = self._known[number]
      if one.place not in found:
        likeness = copies(sought, sought_cut, one.fingerprint, known_cut)
        if likeness:
          found[one.place] = likeness
      if len(found) == _MAX_ORIGINALS:
        break
    return found

  def _candidates(self, sought: Fingerprint):
    """Yields (number of a known image, the two similar views) for pairs of views, nearest first."""
    pairs = []
    for cut, one in zip(SOUGHT_VIEWS, hashes(sought.thumbnail, SOUGHT_VIEWS), strict=True):
      rows, distances = self._index.near(int(one))
      pairs += zip(distances.tolist(), rows.tolist(), [cut] * len(rows), strict=True)
    for _, row, cut in sorted(pairs):
      number, view = divmod(row, len(KNOWN_VIEWS))
      yield number, cut, KNOWN_VIEWS[view]
