"""Images that are copies of images in a collection of known ones."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.data.duplicates.compare import copies
from vit_jax.data.duplicates.fingerprint import KNOWN_VIEWS, SOUGHT_VIEWS, Fingerprint, hashes
from vit_jax.data.duplicates.index import Index

_MOST = 10  # copies told of one image: one is enough to leave it out


class Known(NamedTuple):
  """An image that others may be copies of.

  Attributes:
    place: (number of its source, its index there).
    fingerprint: of the image.
    hashes: (25,) uint64, of its views.
  """

  place: tuple[int, int]
  fingerprint: Fingerprint
  hashes: np.ndarray

  @classmethod
  def of(cls, place: tuple[int, int], fingerprint: Fingerprint) -> "Known":
    """With the hashes of all views."""
    return cls(place, fingerprint, hashes(fingerprint.thumbnail, KNOWN_VIEWS))


class Search:
  """Finds copies of the known images; about 4 KB of memory each."""

  def __init__(self, known: Iterable[Known]):
    """Sorts the known images' hashes."""
    self._known: Sequence[Known] = list(known)
    all_hashes = [one.hashes for one in self._known]
    self._index = Index(np.concatenate(all_hashes) if all_hashes else np.zeros(0, np.uint64))

  def copied(self, sought: Fingerprint) -> dict[tuple[int, int], float]:
    """Places of at most 10 images that `sought` is a copy of, and the concordances with them."""
    found = {}
    for number, sought_cut, known_cut in self._candidates(sought):
      one = self._known[number]
      if one.place not in found:
        likeness = copies(sought, sought_cut, one.fingerprint, known_cut)
        if likeness:
          found[one.place] = likeness
      if len(found) == _MOST:
        break
    return found

  def _candidates(self, sought: Fingerprint):
    """(number of a known image, views that are alike), for each pair of views, nearest first."""
    pairs = []
    for cut, one in zip(SOUGHT_VIEWS, hashes(sought.thumbnail, SOUGHT_VIEWS), strict=True):
      rows, distances = self._index.near(int(one))
      pairs += zip(distances.tolist(), rows.tolist(), [cut] * len(rows), strict=True)
    for _, row, cut in sorted(pairs):
      number, view = divmod(row, len(KNOWN_VIEWS))
      yield number, cut, KNOWN_VIEWS[view]
