"""Features of images: a map of them in the plane, and the nearest neighbours."""

import numpy as np

from vit_jax.evaluation.features import unit

LEAST = 4  # images in a map


def plane(features: np.ndarray, method: str) -> np.ndarray:
  """Maps features (B, D) to the plane, (B, 2) float64; scales the features to length 1 first.

  Args:
    features: of at least 4 images.
    method: "tsne", van der Maaten and Hinton's t-SNE, which keeps neighbours together; or "pca",
      the first two principal components.

  Raises:
    ValueError: there are too few images, or all features are equal or not finite.
  """
  from sklearn.decomposition import PCA  # slow to import
  from sklearn.manifold import TSNE

  if len(features) < LEAST:
    raise ValueError(f"a map of features needs at least {LEAST} images; there are {len(features)}.")
  if not np.isfinite(features).all():
    raise ValueError("the features of some images are not finite numbers.")
  if not np.ptp(features, axis=0).any():
    raise ValueError("all images have the same features, so there is nothing to map.")
  features = unit(features)
  if method == "pca":
    return PCA(2, random_state=0).fit_transform(features).astype(np.float64)
  perplexity = min(30, (len(features) - 1) / 3)
  places = TSNE(2, perplexity=perplexity, init="pca", random_state=0).fit_transform(features)
  return places.astype(np.float64)


def neighbours(features: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
  """The images most similar to each image, by the cosine of their features.

  Returns:
    Rows (B, k) int64 and similarities (B, k) float32, greatest first, without the image itself; k
    is `count`, or B - 1 if that is less.
  """
  features = unit(features)
  cosines = features @ features.T
  np.fill_diagonal(cosines, -np.inf)
  rows = np.argsort(-cosines, axis=1, kind="stable")[:, : min(count, len(features) - 1)]
  return rows, np.take_along_axis(cosines, rows, axis=1)
