"""A module is described by settings that make the same module again."""

import dataclasses

import pytest

from tests.weights import families
from tests.weights.families import FAMILIES
from vit_jax import models
from vit_jax.config import AUTO
from vit_jax.config.model import ARCHITECTURE
from vit_jax.models.recognition import architecture, differences


def again(module):
  return models.configured(dataclasses.replace(models.settings_of(module), num_classes=10))


@pytest.mark.parametrize("name", [*models.names(), "ViT-B/20", "R101x2", "R50x1+ViT-B/16p2"])
def test_a_name_comes_back(name):
  module = models.create(name)
  described = models.settings_of(module)
  assert differences(again(module), module) == []
  same_shape = {"ViT-b": "ViT-S", "R+": "R+", "R50x1+ViT-B/16p2": "R50x1+ViT-B/16"}
  if name in models.names() and not name.startswith(tuple(same_shape)):
    assert described.name == name


@pytest.mark.parametrize(
  ("name", "options"),
  [
    ("ViT-Ti/4", dict(depth=3, width=32, mlp_dim=64, heads=2)),
    ("ViT-B/16", dict(pool="gap", positions="2d", position_place="every_layer")),
    ("ViT-L/32", dict(activation="gelu", norm_epsilon=1e-5, pool="map")),
    ("ViT-S/16", dict(positions="none", pool="gap")),
    ("R50x1", dict(stages=(1, 1), width=32)),
    ("Axial-R50", dict(stages=(1, 1), heads=2)),
    ("R26+ViT-Ti/16", dict(stages=(1,), depth=2)),
    ("Axial-ViT-B/16", dict(depth=2)),
    ("R50x1+ViT-B/16", dict(stem_width=32)),
  ],
)
def test_what_differs_from_a_name_is_kept(name, options):
  module = models.create(name, **options)
  assert differences(again(module), module) == []
  assert AUTO not in [getattr(models.settings_of(module), key) for key in ("name", *ARCHITECTURE)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_module_of_parameters_and_settings_is_that_of_the_settings(family):
  """No name is asked: with all fields known, parameters only confirm them."""
  module, params = families.module(family), families.params(family)
  known = dataclasses.replace(models.settings_of(module), name="of no meaning")
  expected = models.module_of(params).clone(**architecture(module))
  assert models.module_of(params, known) == expected


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (dict(depth=3), "depth is 2 in them, and 3 in what describes them"),
    (dict(heads=4), "heads is 2 in them, and 4"),
    (dict(pool="gap"), "pool is class_token in them, and gap"),
    (dict(stem_width=64, stages=(3, 4, 9)), "stem_width is 0 in them, and 64"),
    (dict(positions="sincos2d"), "positions is 1d in them, and sincos2d"),
    (dict(family="resnet"), "no model of resnet has such names"),
  ],
)
def test_parameters_of_another_model_than_is_said_are_refused(change, message):
  known = dataclasses.replace(models.settings_of(families.module("vit")), **change)
  with pytest.raises(ValueError, match=message):
    models.module_of(families.params("vit"), known)
