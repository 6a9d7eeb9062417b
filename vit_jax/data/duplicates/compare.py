"""Decides whether two images with nearly equal hashes are copies of each other.

A copy has the brightness, the contrast and the shapes of its original. Therefore views are compared
by their concordance, Lin's coefficient, which is lower than the correlation if means or variances
differ: unrelated images of one edge, or flat windows of one sky, correlate up to 0.98. Details are
compared by their correlation, because different images may have the same layout. Details that
differ by less than a grey level are ignored: encoding an image changes it as much.

This cannot distinguish drawings of few strokes: different digits of 8 x 8 pixels correlate up to
0.994, better than many of them with their own JPEG of quality 50. Therefore, if the smaller side
has fewer than 32 pixels, only images with exactly the same pixels count as copies.
docs/duplicates.md has the fractions of copies found and of false copies, by size and contrast.
"""

import numpy as np
import scipy.fft

from vit_jax.data.duplicates.fingerprint import VIEW, Fingerprint, view

SMALLEST = 32  # pixels; for smaller images only exact copies count
LIKE = 0.85  # least concordance of the views of copies
DETAILS_LIKE = 0.45  # least correlation of their details
FAINT = 1.0  # grey levels, root mean square; a smaller difference of details is ignored

_DETAILS = (6, 16)  # range of frequencies on each axis
_RIM = 1  # pixels at the edge of a view, which may show parts that the other image does not have


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
  first, second = view(sought.thumbnail, sought_cut), view(known.thumbnail, known_cut)
  whole, details = likeness(first, second)
  return whole if whole >= LIKE and details >= DETAILS_LIKE else 0.0


def likeness(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
  """Concordance of two views inside their rims, and correlation of their details (1 if faint)."""
  inner = slice(_RIM, VIEW - _RIM)
  details = details_of(first), details_of(second)
  difference = np.sqrt(((details[0] - details[1]) ** 2).sum()) / VIEW  # in pixels: Parseval
  return (
    concordance(first[inner, inner], second[inner, inner]),
    1.0 if difference <= FAINT else correlation(*details),
  )


def concordance(first: np.ndarray, second: np.ndarray) -> float:
  """Lin's coefficient: 1 if the images are equal, 0 if one of them is constant.

  Source: Lin, "A concordance correlation coefficient to evaluate reproducibility", 1989.
  """
  spread = float(first.var() + second.var() + (first.mean() - second.mean()) ** 2)
  together = float(((first - first.mean()) * (second - second.mean())).mean())
  return 2 * together / spread if spread > 1e-6 else 0.0


def correlation(first: np.ndarray, second: np.ndarray) -> float:
  """Pearson's coefficient; 0 if one of the images is constant."""
  first, second = first - first.mean(), second - second.mean()
  scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
  return float((first * second).sum()) / scale if scale > 1e-6 else 0.0


def details_of(image: np.ndarray) -> np.ndarray:
  """The frequencies that distinguish a copy from another image with the same layout."""
  low, high = _DETAILS
  frequency = np.maximum(*np.mgrid[:VIEW, :VIEW])
  return scipy.fft.dctn(image, norm="ortho")[(frequency >= low) & (frequency < high)]
