"""Names of models, their modules, and options that contradict each other."""

import dataclasses
import re

import jax.numpy as jnp
import pytest

from vit_jax import config as c
from vit_jax import models, registry

MODULES = [family.module for family in registry.FAMILIES.values()]


def test_all_names_can_be_created():
  named = {"ViT-B/16", "ViT-H/14", "ViT-b/32", "R152x2", "R50x1+ViT-L/16", "Axial-R50"}
  assert named <= set(models.names())
  for name in models.names():
    models.create(name)


@pytest.mark.parametrize(
  ("name", "fields"),
  [
    ("ViT-L/20", dict(patch=20, depth=24, stages=None, axial=False, pool="class_token")),
    ("R101x2", dict(stages=(3, 4, 23, 3), width=128, heads=0)),
    ("Axial-R50", dict(stages=(3, 4, 6, 3), width=64, heads=8)),
    ("Axial-ViT-B/32", dict(patch=32, axial=True, pool="gap")),
    ("R50x1+ViT-B/32", dict(patch=1, stages=(3, 4, 6, 3), stem_width=64)),
    ("R50x1+ViT-B/16", dict(patch=1, stages=(3, 4, 9), stem_width=64)),
    ("R50+ViT-B/16", dict(patch=1, stages=(3, 4, 9), stem_width=64)),
    ("R101x2+ViT-L/16", dict(patch=1, stages=(3, 4, 26), stem_width=128, depth=24)),
    ("R50x1+ViT-B/16p2", dict(patch=2, stages=(3, 4, 9), stem_width=64)),
    ("R101x2+ViT-L/32p7", dict(patch=7, stages=(3, 4, 23, 3), stem_width=128)),
    ("R26+ViT-S/32", dict(patch=1, stages=(2, 2, 2, 2))),
    ("R+ViT-Ti/16", dict(patch=8, stages=())),
  ],
)
def test_what_a_name_says(name, fields):
  model = models.create(name)
  assert {key: getattr(model, key) for key in fields} == fields


@pytest.mark.parametrize(
  "name",
  [
    "ViT-X/16",
    "vit-b/16",
    "ViT-B/0",
    "ViT-B",
    "B/16",
    "R51x1",
    "R50",
    "R50x0",
    "Axial-R51",
    "R50x1+ViT-B/8",
    "R+ViT-B/32",
    "R50x1+ViT-X/16",
    "R50x1+ViT-B/16p0",
    "R+ViT-Ti/16p2",
    "ViT-B/16p2",
    "R51x1+ViT-B/16",
    "Axial-ViT-B",
    "",
  ],
)
def test_unknown_names_list_the_nearest(name):
  with pytest.raises(ValueError, match=r"is no model; nearest: .*(ViT-|R)"):
    models.create(name)


@pytest.mark.parametrize(
  ("name", "nearest"),
  [
    ("ViTB/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("vit-b/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("VIT-B/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("ViT-X/16", ".*ViT-B/16"),  # of every size
    ("xyz", "ViT-"),  # what is like nothing does not begin with rarities
    ("vit_giant_patch14_224", "ViT-"),
    ("ViT-B/00", "ViT-"),
  ],
)
def test_the_nearest_name_comes_first(name, nearest):
  with pytest.raises(ValueError, match=f"is no model; nearest: {nearest}"):
    models.create(name)


def test_the_config_sets_the_patches():
  """Section 3.1: patches of a hybrid are cut out of the map, and 1 x 1 is the special case."""
  named = models.create("R50x1+ViT-B/16p2", num_classes=1000)
  assert models.configured(c.Model(num_classes=1000, name="R50x1+ViT-B/16", patch=2)) == named
  assert models.configured(c.Model(num_classes=1000, name="ViT-B/32", patch=16)) == models.create(
    "ViT-B/16"
  )
  assert (named.stride(), named.grid(224, 96)) == (32, (7, 3))
  with pytest.raises(ValueError, match="Maps of 15 x 14 positions cannot be cut into patches of 2"):
    named.grid(240, 224)


def test_settings_of_another_kind_of_model_say_how_to_leave_them_out():
  transformer = c.Model("R50x1", 10, representation_layer=True, dropout=0.1, positions="2d")
  expected = (
    r"^representation_layer is no option of R50x1; give "
    r"--config.model.representation_layer=False --config.model.positions=1d "
    r"--config.model.dropout=0.0 to leave out what it lacks\.$"
  )
  with pytest.raises(ValueError, match=expected):
    models.configured(transformer)


@pytest.mark.parametrize(
  ("name", "setting", "other"),
  [
    ("ViT-B/16", dict(stages=(3, 4, 9)), r"R50x1\+ViT-B/16"),
    ("Axial-ViT-B/16", dict(stages=(1,)), r"R50x1\+ViT-B/16"),
    ("R50x1", dict(heads=8), "Axial-R50"),
    ("R152x2", dict(heads=4), "Axial-R50"),
    ("R50x1", dict(heads=8, depth=3), None),
  ],
)
def test_a_setting_makes_no_other_kind_of_model_than_the_name_says(name, setting, other):
  expected = rf"^(heads|stages) is no option of {name}, but of {other}; give --config\.model\."
  with pytest.raises(ValueError, match=expected if other else "^depth is no option of R50x1; give"):
    models.configured(c.Model(num_classes=1000, name=name, **setting))


@pytest.mark.parametrize(
  ("name", "setting", "value"),
  [("R50x1", "stages", (1, 2)), ("R+ViT-Ti/16", "stages", (1,)), ("Axial-R50", "heads", 4)],
)
def test_settings_change_what_the_name_has(name, setting, value):
  module = models.configured(c.Model(name, 1000, **{setting: value}))
  assert getattr(module, setting) == value


def test_an_option_of_another_kind_of_model():
  with pytest.raises(ValueError, match=r"depth is no option of R50x1, which has .*stages"):
    models.create("R50x1", depth=3)


def test_heads_that_do_not_divide_the_width():
  with pytest.raises(ValueError, match=r"heads=7 does not divide the width 768 of ViT-B/16"):
    models.create("ViT-B/16", heads=7)


def test_a_config_at_its_defaults_is_the_module_at_its_defaults():
  """`configured` only passes on settings that differ from the config's defaults."""
  settings = c.Model()
  for kind in MODULES:
    for field in dataclasses.fields(kind):
      value = getattr(settings, field.name, None) if field.name != "name" else None
      if field.default is not dataclasses.MISSING and value not in (None, "", 0, ()):
        assert value == field.default, field.name
  assert jnp.dtype(settings.compute_dtype) == jnp.dtype(models.create("ViT-B/16").dtype)


def test_every_setting_is_a_field_of_some_module():
  fields = {f.name for kind in MODULES for f in dataclasses.fields(kind)}
  settings = {f.name for f in dataclasses.fields(c.Model)}
  assert settings - fields == {"compute_dtype"} | ({"name"} - fields)


@pytest.mark.parametrize(
  ("theirs", "ours"),
  [
    ("vit_base_patch16_224", "ViT-B/16"),
    ("vit_large_patch16_384.augreg_in21k_ft_in1k", "ViT-L/16"),
    ("timm/vit_tiny_patch16_224", "ViT-Ti/16"),
    ("vit_huge_patch14_224_in21k", "ViT-H/14"),
    ("vit_small_patch32_384", "ViT-S/32"),
    ("vit_base_r50_s16_384.orig_in21k_ft_in1k", "R50x1+ViT-B/16"),
    ("vit_small_r26_s32_224", "R26+ViT-S/32"),
    ("vit_tiny_r_s16_p8_224", "R+ViT-Ti/16"),
    ("resnetv2_50x1_bit.goog_in21k", "R50x1"),
    ("resnetv2_152x2_bitm", "R152x2"),
    ("google/vit-base-patch16-224-in21k", "ViT-B/16"),
    ("google/vit-large-patch32-384", "ViT-L/32"),
    ("google/vit-hybrid-base-bit-384", "R50x1+ViT-B/16"),
    ("facebook/deit-small-patch16-224", "ViT-S/16"),
    ("google/bit-50", "R50x1"),
    ("vit_b_16", "ViT-B/16"),
    ("ViT-L-14", "ViT-L/14"),
    ("B_16-i21k-300ep-lr_0.001.npz", "ViT-B/16"),
    ("R26_S_32", "R26+ViT-S/32"),
    ("R50+ViT-B_16", "R50x1+ViT-B/16"),
    ("BiT-M-R101x3", "R101x3"),
    ("vit_base_patch16_clip_224.openai", "ViT-B/16"),
  ],
)
def test_what_others_call_a_model_is_told_by_our_name(theirs, ours):
  with pytest.raises(ValueError, match=rf"is no model; nearest: {re.escape(ours)}[,.]"):
    models.create(theirs)
  models.create(ours)
