"""What the report says of the pictures from inside models of all families."""

import pytest

from tests.extras.inspection.miniatures import IMAGES, model
from vit_jax.extras.inspection import mean_distances
from vit_jax.extras.report import inside
from vit_jax.inference.model import LoadedModel
from vit_jax.weights.card import Card


def loaded(family, **options):
  return LoadedModel(None, *model(family, **options), Card(image_size=16))


@pytest.mark.parametrize(
  ("family", "options", "filters", "positions"),
  [
    ("vit", {}, "the patch embedding", "position embeddings"),
    ("hybrid", {}, "the ResNet's root", "position embeddings"),
    ("vit", {"positions": "relative"}, "the patch embedding", "offset zero"),
  ],
)
def test_pictures_are_named_after_what_they_show(family, options, filters, positions):
  first, second = inside.of_parameters(loaded(family, **options))
  assert f"filters of {filters}, which hold" in first.caption
  assert positions in second.caption
  assert ("offset zero" in second.alt) == ("positions" in options)


def test_the_distance_of_axial_models_is_that_of_both_axes():
  axial = loaded("axial")
  first, *_, last = mean_distances(axial.module, axial.params, IMAGES).mean(axis=(0, 2))
  alt = inside.distances(axial, IMAGES, "test").alt
  assert f"from {first:.1f} pixels in the first to {last:.1f} in the last" in alt
