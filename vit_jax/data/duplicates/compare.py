"""Whether two images that have nearly equal hashes are copies of one another.

What it cannot tell apart is drawings of few strokes: different digits of 8 x 8 pixels correlate up
to 0.994, better than many of them with their own JPEG of quality 50. Where the smaller side has
fewer than 32 pixels only the very same pixels count, therefore. Larger photographs lie far apart:
in some view copies correlate by 0.85 and more; the few windows of photographs that share nothing
and have nearly equal hashes nonetheless did by less than 0.4.
"""

import numpy as np
import scipy.fft

from vit_jax.data.duplicates.fingerprint import VIEW, Fingerprint, view

SMALLEST = 32  # pixels: of smaller images only exact copies count
LIKE = 0.85  # correlation of the views
DETAILS_LIKE = 0.45  # correlation of their details

_DETAILS = (6, 16)  # frequencies an axis
_RIM = 1  # pixels of a view that may show what lies outside of the other image


def copies(sought: Fingerprint, sought_cut, known: Fingerprint, known_cut) -> float:
  """Correlation of two images if one is a copy of the other, else 0.

  Args:
    sought, known: the images.
    sought_cut, known_cut: the views of theirs that have nearly equal hashes.
  """
  if sought.digest == known.digest:
    return 1.0
  if min(sought.side, known.side) < SMALLEST:
    return 0.0
  first, second = view(sought.thumbnail, sought_cut), view(known.thumbnail, known_cut)
  whole, details = likeness(first, second)
  return whole if whole >= LIKE and details >= DETAILS_LIKE else 0.0


def likeness(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
  """Correlation of two views within their rims, and that of their details."""
  inner = slice(_RIM, VIEW - _RIM)
  return (
    correlation(first[inner, inner], second[inner, inner]),
    correlation(details_of(first), details_of(second)),
  )


def correlation(first: np.ndarray, second: np.ndarray) -> float:
  """Pearson's; 0 where one of them is constant."""
  first, second = first - first.mean(), second - second.mean()
  scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
  return float((first * second).sum()) / scale if scale > 1e-6 else 0.0


def details_of(image: np.ndarray) -> np.ndarray:
  """The frequencies that tell a copy from something that is only laid out alike."""
  low, high = _DETAILS
  frequency = np.maximum(*np.mgrid[:VIEW, :VIEW])
  return scipy.fft.dctn(image, norm="ortho")[(frequency >= low) & (frequency < high)]
