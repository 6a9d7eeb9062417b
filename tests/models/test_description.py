"""A module is described by settings that make the same module again."""

import dataclasses

import pytest

from vit_jax import config as c
from vit_jax import models
from vit_jax.models.description import differences


def again(module):
  return models.configured(dataclasses.replace(models.settings_of(module), num_classes=10))


@pytest.mark.parametrize("name", [*models.names(), "ViT-B/20", "R101x2", "R50x1+ViT-B/16p2"])
def test_a_name_comes_back(name):
  module = models.create(name)
  described = models.settings_of(module)
  assert differences(again(module), module) == []
  same_shape = {"ViT-b": "ViT-S", "R+": "R+", "R50x1+ViT-B/16p2": "R50x1+ViT-B/16"}
  if name in models.names() and not name.startswith(tuple(same_shape)):
    assert described == c.Model(name=name)


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
  ],
)
def test_what_differs_from_a_name_is_kept(name, options):
  module = models.create(name, **options)
  assert differences(again(module), module) == []


def test_a_stem_that_no_name_has_is_refused():
  module = models.create("R50x1+ViT-B/16", stem_width=32)
  with pytest.raises(ValueError, match=r"without a name; give config\.model\.name"):
    models.settings_of(module)
