"""Sizes to which evaluation resizes images."""

import pytest

from vit_jax.data import crops


@pytest.mark.parametrize(("side", "square"), [(224, 256), (384, 439), (8, 9)])
def test_features_are_of_the_centre_of_a_square(side, square):
  assert crops.square(side) == square
