"""Features of patches as colours: NumPy's singular values, and patches whose colours are known."""

import numpy as np
import pytest

from tests import modules
from tests.extras.inspection.miniatures import IMAGES, model
from vit_jax.extras import inspection
from vit_jax.extras.inspection.patches import between_quantiles
from vit_jax.extras.inspection.principal import principal_components

GRID = (2, 5, 6)


def drawn():
  """Features (2, 5, 6, 8) with a different variance along each of eight directions."""
  rng = np.random.default_rng(0)
  turn, _ = np.linalg.qr(rng.standard_normal((8, 8)))
  values = rng.standard_normal((60, 8)) * 2.0 ** -np.arange(8) @ turn + 3
  return values.astype(np.float32).reshape(*GRID, 8)


def by_svd(features):
  """Components (3, D), shares (3,) and scores (N, 3) by NumPy, the largest weight positive."""
  samples = features.reshape(-1, features.shape[-1]).astype(np.float64)
  centred = samples - samples.mean(axis=0)
  _, lengths, rows = np.linalg.svd(centred, full_matrices=False)
  vectors = np.stack([row * np.sign(row[np.abs(row).argmax()]) for row in rows[:3]])
  return vectors, (lengths**2 / (lengths**2).sum())[:3], centred @ vectors.T


def test_colours_are_the_scaled_scores_of_the_singular_vectors():
  _, shares, scores = by_svd(drawn())
  found = inspection.patch_colours(drawn())
  np.testing.assert_allclose(found.variance, shares, rtol=1e-9)
  low, high = np.sort(scores, axis=0)[[0, -1]]
  first, last = (np.quantile(scores, share, axis=0) for share in (0.01, 0.99))
  assert (low < first).all()
  assert (last < high).all()
  wanted = np.clip((scores - first) / (last - first), 0, 1).reshape(*GRID, 3)
  np.testing.assert_allclose(found.colours, wanted, atol=1e-6)


@pytest.mark.parametrize("count", [5, 60])  # fewer samples than features, and more
def test_components_do_not_depend_on_the_order_of_samples(count):
  samples = drawn().reshape(-1, 8)[:count].astype(np.float64)
  found, _ = principal_components(samples, 3)
  np.testing.assert_allclose(found, by_svd(samples)[0], atol=1e-9)
  again, _ = principal_components(samples[::-1], 3)
  np.testing.assert_allclose(again, found, atol=1e-9)


def test_images_share_their_components():
  """A patch that two images have in common has one colour, whatever the rest of the images is."""
  features = drawn()
  features[1, 4, 0] = features[0, 2, 3]
  colours = inspection.patch_colours(features).colours
  np.testing.assert_array_equal(colours[1, 4, 0], colours[0, 2, 3])
  alone = inspection.patch_colours(features[:1]).colours
  assert np.abs(alone - colours[:1]).max() > 0.05


def test_outlying_patches_leave_the_others_their_range():
  scores = np.linspace(-1, 1, 1000)[:, None]
  outlying = scores.copy()
  outlying[:5] = -500
  outlying[-5:] = 900
  found = between_quantiles(outlying)
  np.testing.assert_allclose(found[10:-10], between_quantiles(scores)[10:-10], atol=1e-6)
  assert found.min() == 0
  assert found.max() == 1


def test_a_component_without_variance_is_grey():
  features = np.zeros((*GRID, 4), np.float32)
  features[..., 0] = drawn()[..., 0]
  colours = inspection.patch_colours(features).colours
  np.testing.assert_allclose(colours[..., 1:], 0.5, atol=1e-6)
  assert np.ptp(colours[..., 0]) == 1


@pytest.mark.parametrize("family", ["vit", "bit"])
def test_features_are_the_output_at_each_patch(family):
  module, params = model(family)
  _, wanted = modules.run(module, params, IMAGES)
  found = inspection.patch_features(module, params, IMAGES)
  assert found.shape[:3] == (2, *module.grid(16, 16))
  np.testing.assert_allclose(found.reshape(wanted["patches"].shape), wanted["patches"], atol=1e-5)


def test_blocks_that_are_stacked_and_pixels():
  module, params = model("vit")
  pixels = np.round(127.5 * (np.asarray(IMAGES) + 1)).clip(0, 255).astype(np.uint8)
  stacked = inspection.patch_features(module.clone(scan=True), params, pixels)
  floats = inspection.patch_features(module, params, pixels / np.float32(127.5) - 1)
  np.testing.assert_allclose(stacked, floats, atol=1e-5)


def test_images_have_the_channels_of_the_model():
  images = np.random.default_rng(0).integers(0, 256, (1, 16, 16, 5), np.uint8)
  module, params = model("vit")
  embedding = {"kernel": np.ones((*params["embedding"]["kernel"].shape[:2], 5, 32), np.float32)}
  options = module.clone(channels=5), params | {"embedding": params["embedding"] | embedding}
  assert inspection.patch_features(*options, images).shape[:3] == (1, *module.grid(16, 16))
  with pytest.raises(ValueError, match=r"must be \(B, H, W, 5\)"):
    inspection.patch_features(*options, images[..., :3])


@pytest.mark.parametrize(
  ("features", "message"),
  [
    (np.zeros((1, 1, 3, 8)), "at least 4 patches with 3 features each; there are 3 with 8"),
    (drawn()[..., :2], "there are 60 with 2"),
    (np.ones((1, 2, 2, 8)), "the same features"),
  ],
)
def test_what_cannot_be_coloured(features, message):
  with pytest.raises(ValueError, match=message):
    inspection.patch_colours(features)


def test_features_that_are_not_finite():
  module, params = model("vit")
  damaged = params | {"embedding": {name: x * np.nan for name, x in params["embedding"].items()}}
  with pytest.raises(ValueError, match="not finite"):
    inspection.patch_features(module, damaged, IMAGES)
