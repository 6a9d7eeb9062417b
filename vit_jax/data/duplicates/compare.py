"""Whether two images that have nearly equal hashes are copies of one another.

A copy has the brightness and the contrast of its original, as well as its shapes. So views are
compared by their concordance, Lin's coefficient, which is lower than the correlation where means or
variances differ: unrelated images of one edge, or flat windows of one sky, correlate up to 0.98.
Details are compared by their correlation, as two images may be laid out alike. Where they differ by
less than a grey level there is nothing to be told by them: an encoder changes as much.

What this cannot tell apart is drawings of few strokes: different digits of 8 x 8 pixels correlate
up to 0.994, better than many of them with their own JPEG of quality 50. Where the smaller side has
fewer than 32 pixels only the very same pixels count, therefore. docs/duplicates.md has the share of
copies found, and of false ones, by size and contrast.
"""

import numpy as np
import scipy.fft

from vit_jax.data.duplicates.fingerprint import VIEW, Fingerprint, view

SMALLEST = 32  # pixels: of smaller images only exact copies count
LIKE = 0.85  # concordance of the views
DETAILS_LIKE = 0.45  # correlation of their details
FAINT = 1.0  # grey levels, root mean square: a smaller difference of details tells nothing

_DETAILS = (6, 16)  # frequencies an axis
_RIM = 1  # pixels of a view that may show what lies outside of the other image


def copies(sought: Fingerprint, sought_cut, known: Fingerprint, known_cut) -> float:
  """Concordance of two images if one is a copy of the other, else 0.

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
  """Concordance of two views within their rims, and correlation of their details; 1 if faint."""
  inner = slice(_RIM, VIEW - _RIM)
  details = details_of(first), details_of(second)
  difference = np.sqrt(((details[0] - details[1]) ** 2).sum()) / VIEW  # in pixels: Parseval
  return (
    concordance(first[inner, inner], second[inner, inner]),
    1.0 if difference <= FAINT else correlation(*details),
  )


def concordance(first: np.ndarray, second: np.ndarray) -> float:
  """Lin's coefficient, 1 where the images are equal; 0 where one of them is constant.

  Source: Lin, "A concordance correlation coefficient to evaluate reproducibility", 1989.
  """
  spread = float(first.var() + second.var() + (first.mean() - second.mean()) ** 2)
  together = float(((first - first.mean()) * (second - second.mean())).mean())
  return 2 * together / spread if spread > 1e-6 else 0.0


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
