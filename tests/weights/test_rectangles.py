"""Weights of models whose images or patches are no squares."""

import dataclasses

import numpy as np
import pytest

from tests import modules
from tests.weights import families
from vit_jax import models, weights
from vit_jax.config import ConfigError
from vit_jax.inference.model import read_model
from vit_jax.models import family
from vit_jax.models.recognition import in_words, settings_of
from vit_jax.storage.tree import flatten
from vit_jax.weights import Weights
from vit_jax.weights.card import Card
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.resizing import PUBLISHED, resize_table

GRIDS = {(32, 8): (8, 2), (16, 16): (4, 4), (8, 40): (2, 10)}  # of patches, for images of a size
CARDS = {(32, 8): ((32, 8), (40, 10)), (16, 16): (16, 20), (8, 40): ((8, 40), (10, 50))}
OF_PATCHES = dict(patch=(2, 4), depth=1, width=8, mlp_dim=8, heads=2, num_classes=3)


def wide(size=(8, 32)):
  """Parameters of a model with class token, for images of 2 x 8 patches of 4 x 4 pixels."""
  module = families.module("vit")
  images = np.zeros((1, *size, 3), np.float32)
  return modules.parameters(module, images, train=False)


def test_the_card_tells_the_grid_of_the_positions(tmp_path):
  params = wide()
  path = tmp_path / "w.safetensors"
  weights.write(path, Weights(params, Card((8, 32), resize=(10, 40))))
  read = read_model(path)
  families.assert_same_bits(read.at_size().params, params)
  table = flatten(params)[POSITIONS]
  for size, grid in GRIDS.items():
    sized = read.at_size(size)
    expected = resize_table(table, (2, 8), grid, before=1, rule=PUBLISHED)
    np.testing.assert_array_equal(flatten(sized.params)[POSITIONS], expected)
    assert (sized.card.image_size, sized.card.resize) == CARDS[size]
  for size in ((8, 32), 0):  # what came between leaves nothing behind
    again = read.at_size((16, 24)).at_size(size)
    families.assert_same_bits(again.params, params)
    assert again.card == read.card


def test_positions_of_an_unknown_rectangle_are_taken_at_their_own_size_alone(tmp_path):
  params = wide((8, 24))
  path = tmp_path / "w.npz"
  weights.save(path, params)
  read = read_model(path)
  assert read.card.image_size == 0
  families.assert_same_bits(read.at_size((8, 24)).params, params)
  with pytest.raises(ValueError, match="12 patches, which is no square; give the size"):
    read.at_size((8, 16))


def test_patches_that_are_no_squares(tmp_path):
  module = models.create("ViT-Ti/16", **OF_PATCHES)
  assert in_words(module).startswith("ViT-Ti/4 patch=(2, 4)")
  assert module.grid(6, 8) == (3, 2)
  assert (module.largest_side(15), module.tiles((6, 8)), module.tiles((6, 6))) == (12, True, False)
  assert "patches are no squares" in module.why_not_masked()
  images = np.random.default_rng(0).uniform(-1, 1, (1, 4, 8, 3)).astype(np.float32)
  params = modules.parameters(module, images, train=False)
  path = tmp_path / "w.safetensors"
  known = Card((4, 8), model=settings_of(module))
  weights.write(path, Weights(params, known))
  read = read_model(path).at_size()
  assert read.module.patch == (2, 4)
  np.testing.assert_array_equal(
    *(modules.run(module, each, images)[0] for each in (params, read.params))
  )
  for size, what in ((4, "patches are 2 x 4"), ((4, 8), "images are 4 x 8")):
    card = dataclasses.replace(known, image_size=size)
    with pytest.raises(ValueError, match=f"its {what} pixels .* squares only"):
      weights.write(tmp_path / "folder", Weights(params, card))


def test_the_nearest_sizes_are_named_for_each_side():
  model = models.create("ViT-Ti/16", patch=(8, 16), num_classes=2)
  message = r"image_size=100x130 is not divisible .*; nearest: 96x128, 104x144\."
  with pytest.raises(ConfigError, match=message):
    family.check_tiles(model, (100, 130), "this model")
  family.check_tiles(model, (104, 144), "this model")
