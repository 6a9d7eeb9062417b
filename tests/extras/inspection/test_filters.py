"""Principal components of filters: those of scikit-learn, and filters that are known."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

from tests.extras.inspection.miniatures import model
from vit_jax.extras import inspection
from vit_jax.extras.inspection.filters import components


def test_those_of_another_implementation_on_one_scale():
  """0.5 is zero, and the largest weight of all is 1."""
  kernel = model("vit")[1]["embedding"]["kernel"]
  found = inspection.filter_components(*model("vit"))
  wanted = PCA().fit(kernel.reshape(-1, kernel.shape[-1]).T.astype(np.float64))
  assert found.tiles.shape == (28, 4, 4, 3)
  np.testing.assert_allclose(found.variance, wanted.explained_variance_ratio_[:28], rtol=1e-9)
  for tile, vector in zip(found.tiles, wanted.components_, strict=False):
    assert abs(np.corrcoef(tile.flatten(), vector)[0, 1]) == pytest.approx(1, abs=1e-5)
  assert found.tiles.max() == 1
  assert found.tiles.min() >= 0
  lengths = np.linalg.norm(found.tiles.reshape(28, -1) - 0.5, axis=1)
  np.testing.assert_allclose(lengths, lengths[0], rtol=1e-5)


def test_filters_along_one_direction_have_one_component():
  direction = np.arange(12.0).reshape(2, 2, 3, 1) - 4
  found = components(direction * np.array([1.0, -2.0, 5.0]))
  assert found.tiles.shape == (3, 2, 2, 3)
  np.testing.assert_allclose(found.variance, [1, 0, 0], atol=1e-12)
  scaled = (found.tiles[0] - 0.5) / np.abs(found.tiles[0] - 0.5).max()
  np.testing.assert_allclose(scaled, direction[..., 0] / 7, atol=1e-6)


def test_filters_that_are_all_equal_have_no_variance():
  assert components(np.ones((2, 2, 3, 4))).variance.max() == 0


def test_a_hybrid_shows_its_root_as_the_model_applies_it():
  module, params = model("hybrid")
  found = inspection.filter_components(module, params)
  assert found.tiles.shape == (28, 7, 7, 3)
  scaled = params | {"conv_root": {"kernel": params["conv_root"]["kernel"] * np.arange(1, 33) + 1}}
  again = inspection.filter_components(module, scaled)
  np.testing.assert_allclose(again.variance, found.variance, rtol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_filters_that_are_not_finite(value):
  kernel = np.zeros((4, 4, 3, 8), np.float32)
  kernel[1, 2, 0, 3] = value
  params = {"embedding": {"kernel": kernel}}
  with pytest.raises(ValueError, match="not finite"):
    inspection.filter_components(model("vit")[0], params)
