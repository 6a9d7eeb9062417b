"""Principal component analysis."""

import numpy as np


def principal_components(samples: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
  """The first `count` principal components; fewer if there are fewer samples or features.

  Args:
    samples: (N, F) float64; their mean is subtracted.
    count: the most components.

  Returns:
    The components (K, F), each of length 1, its weight of the largest magnitude positive; and the
    shares (K,) of the samples' variance along them, descending, 0 if the samples are all equal.
  """
  from sklearn.decomposition import PCA  # slow to import

  with np.errstate(invalid="ignore"):
    found = PCA(min(count, *samples.shape), svd_solver="full").fit(samples)
  return found.components_, np.nan_to_num(found.explained_variance_ratio_)
