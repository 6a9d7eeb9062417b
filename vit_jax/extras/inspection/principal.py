"""Principal component analysis with signs that do not depend on the library."""

from typing import NamedTuple

import numpy as np


class PrincipalComponents(NamedTuple):
  """Principal components of samples.

  Attributes:
    vectors: (K, F) float64, each of length 1; its weight of the largest magnitude is positive.
    variance: (K,) float64, the share of the samples' variance along each component, descending.
  """

  vectors: np.ndarray
  variance: np.ndarray


def principal_components(samples: np.ndarray, count: int) -> PrincipalComponents:
  """The first `count` principal components; fewer if there are fewer samples or features.

  Args:
    samples: (N, F) float64; their mean is subtracted.
    count: the most components.
  """
  # The triangle of a QR decomposition has the same components, and at most F rows.
  triangle = np.linalg.qr(samples - samples.mean(axis=0), mode="r")
  _, lengths, vectors = np.linalg.svd(triangle, full_matrices=False)
  variance = lengths**2 / max((lengths**2).sum(), np.finfo(np.float64).tiny)
  vectors = vectors[:count]
  largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None], axis=1)
  return PrincipalComponents(vectors * np.sign(largest), variance[:count])
