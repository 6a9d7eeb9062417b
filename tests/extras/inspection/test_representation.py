"""Maps of features and nearest neighbours, for features whose places are known."""

import numpy as np
import pytest
from sklearn.manifold import TSNE

from vit_jax.evaluation.features import unit
from vit_jax.extras.inspection.representation import neighbours, plane


def groups(count=6):
  """Two groups of directions that are far apart."""
  rng = np.random.default_rng(0)
  centres = np.repeat([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], count, axis=0)
  return (centres + 0.05 * rng.standard_normal(centres.shape)).astype(np.float32)


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_groups_stay_groups_in_the_plane(method):
  places = plane(groups(), method)
  apart = np.linalg.norm(places[:, None] - places, axis=-1)
  assert apart[:6, :6].max() < apart[:6, 6:].min()
  np.testing.assert_array_equal(plane(groups(), method), places)


def test_principal_components_are_those_of_the_singular_values():
  places = plane(groups(), "pca")
  features = unit(groups()).astype(np.float64)
  left, sizes, _ = np.linalg.svd(features - features.mean(axis=0), full_matrices=False)
  np.testing.assert_allclose(abs(places), abs(left[:, :2] * sizes[:2]), atol=1e-5)


def test_neighbours_are_those_of_the_greatest_cosine():
  features = groups() * np.arange(1, 13, dtype=np.float32)[:, None]  # lengths do not count
  rows, alike = neighbours(features, 3)
  length_1 = features / np.linalg.norm(features, axis=1, keepdims=True)
  cosine = length_1 @ length_1.T - 9 * np.eye(12)
  np.testing.assert_array_equal(rows[:, 0], cosine.argmax(axis=1))
  np.testing.assert_allclose(alike[:, 0], cosine.max(axis=1), rtol=1e-5)
  assert (np.diff(alike, axis=1) <= 0).all()
  assert neighbours(features[:2], 3)[0].tolist() == [[1], [0]]


def test_of_neighbours_that_are_equally_alike_the_first_comes_first():
  features = np.tile(np.float32([[1, 0], [0, 1]]), (20, 1))
  rows, _ = neighbours(features, 39)
  assert rows[4].tolist() == [*range(0, 4, 2), *range(6, 40, 2), *range(1, 40, 2)]


@pytest.mark.parametrize(
  ("features", "message"),
  [
    (groups()[:3], "at least 4 images; there are 3"),
    (np.ones((5, 4), np.float32), "the same features"),
    (np.full((5, 4), np.nan, np.float32), "not finite"),
  ],
)
def test_what_cannot_be_mapped(features, message):
  with pytest.raises(ValueError, match=message):
    plane(features, "tsne")


def test_the_map_is_that_of_tsne_with_a_third_of_the_others_as_neighbours():
  tsne = TSNE(2, perplexity=11 / 3, init="pca", random_state=0)
  expected = tsne.fit_transform(unit(groups()))
  np.testing.assert_allclose(plane(groups(), "tsne"), expected, rtol=1e-3)
