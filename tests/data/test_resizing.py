"""Sizes to which evaluation resizes images, and those that are refused."""

import pytest

from vit_jax import config as c
from vit_jax.data import resizing


@pytest.mark.parametrize(
  ("own", "side", "resize"),
  [(-1, 8, 10), (0, 8, 0), (1, 8, 8), (512 / 480, 480, 512), (512 / 480, 384, 410)],
)
def test_a_set_may_be_resized_in_its_own_way(own, side, resize):
  """`resize` is a ratio: ObjectNet's 512 to 480 holds at every image size."""
  sets = {"set": c.EvaluationSet("digits", "test", resize=own)}
  data = c.Data(evaluate=sets, image_size=side, evaluate_resize=10)
  assert resizing.of_set(sets["set"], data) == resize


@pytest.mark.parametrize(("side", "square"), [(224, 256), (384, 439), (8, 9)])
def test_features_are_of_the_centre_of_a_square(side, square):
  assert resizing.square(side) == square
