"""Names of models, their modules, and options that contradict each other."""

import dataclasses
import re

import numpy as np
import pytest

from vit_jax import config as c
from vit_jax import models, registry
from vit_jax.config.model import USUAL

MODULES = [family.module for family in registry.FAMILIES.values()]


def test_all_names_can_be_created():
  named = {"ViT-B/16", "ViT-H/14", "ViT-b/32", "R152x2", "R50x1+ViT-L/16", "Axial-R50"}
  assert named <= set(models.names())
  for name in models.names():
    models.create(name)


@pytest.mark.parametrize(
  ("name", "fields"),
  [
    ("ViT-L/20", dict(patch=20, depth=24, stem_width=0, axial=False, pool="class_token")),
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
    ("R+ViT-Ti/16", dict(patch=8, stem_width=64, stages=())),
  ],
)
def test_what_a_name_says(name, fields):
  model = models.create(name)
  assert {key: getattr(model, key) for key in fields} == fields


UNKNOWN = "ViT-X/16 ViT-B/0 ViT-B B/16 R51x1 R50 R50x0 Axial-R51 Axial-ViT-B R50x1+ViT-B/8"
UNKNOWN += " R+ViT-B/32 R50x1+ViT-X/16 R50x1+ViT-B/16p0 R+ViT-Ti/16p2 ViT-B/16p2 R51x1+ViT-B/16"


@pytest.mark.parametrize(
  ("name", "nearest"),
  [
    *((name, ".*(ViT-|R)") for name in ["", *UNKNOWN.split()]),
    ("ViTB/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("vit-b/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("VIT-B/16", "ViT-B/16, ViT-b/16, ViT-"),
    ("ViT-X/16", ".*ViT-B/16"),  # of every size
    ("xyz", "ViT-"),  # what is like nothing does not begin with rarities
    ("ViT-B/00", "ViT-"),
    # Like names of other libraries.
    ("ViT-L-14", "ViT-L/14[,.]"),
    ("vit_base_patch16_newpart_224", "ViT-B/16[,.]"),
    ("vit_small_patch16_plus_224", "ViT-S/16[,.]"),  # what "plus" means is known of "base"
    ("google/vit-hybrid-base-bit-384", r"R50x1\+ViT-B/16[,.]"),
    ("google/bit-50", "R50x1[,.]"),
  ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name, nearest):
  with pytest.raises(ValueError, match=f"is no model; nearest: {nearest}"):
    models.create(name)


def test_the_config_sets_the_patches():
  """Section 3.1: patches of a hybrid are cut out of the map, and 1 x 1 is the special case."""
  named = models.create("R50x1+ViT-B/16p2", num_classes=1000)
  usual = dict(num_classes=1000, compute_dtype="float32")
  assert models.configured(c.Model(name="R50x1+ViT-B/16", patch=2, **usual)) == named
  assert models.configured(c.Model(name="ViT-B/32", patch=16, **usual)) == models.create("ViT-B/16")
  assert (named.stride(), named.grid(224, 96)) == (32, (7, 3))
  with pytest.raises(ValueError, match="Maps of 15 x 14 positions cannot be cut into patches of 2"):
    named.grid(240, 224)


@pytest.mark.parametrize(
  ("name", "setting", "message"),
  [
    ("ViT-B/16", dict(stages=(3, 4, 9)), r"stages=\(3, 4, 9\) is of a ResNet below .* has none"),
    ("Axial-ViT-B/16", dict(stages=(1,)), r"stages=\(1,\) .* Axial-ViT-B/16 has none; give"),
    ("ViT-B/16", dict(stem_norms="timm"), "stem_norms=timm is of a ResNet"),
    ("ViT-B/16", dict(stem_width=48), "stem_width=48 of ViT-B/16 is not divisible by the 32"),
    ("R50x1", dict(depth=3), "depth is no option of R50x1; give --config.model.depth=auto"),
    (
      "R50x1",
      dict(representation_layer=True, dropout=0.1, positions="2d"),
      r"representation_layer is no option of R50x1; give --config.model.representation_layer=False"
      r" --config.model.positions=auto --config.model.dropout=0.0 ",
    ),
    ("R50x1", dict(family="vit"), "patch=0 leaves nothing of R50x1"),
    ("ViT-B/16", dict(family="resnet"), "patch is no option of ViT-B/16"),
  ],
)
def test_settings_of_parts_that_a_model_lacks_are_refused(name, setting, message):
  with pytest.raises(ValueError, match=f"^{message}"):
    models.configured(c.Model(num_classes=1000, name=name, **setting))


@pytest.mark.parametrize(
  ("name", "options", "message"),
  [
    ("R50x1", dict(depth=3), "depth is no option of R50x1, which has .*stages"),
    ("ViT-B/16", dict(heads=7), "heads=7 does not divide the width 768 of ViT-B/16"),
    (
      "ViT-B/4",
      dict(positions="sincos2d", width=30, heads=2),
      "width of ViT-B/4, 30, is not a multiple",
    ),
    ("ViT-B/4", dict(positions="sincos2d", width=4, heads=2), "width of ViT-B/4, 4, is not"),
    ("ViT-B/4", dict(positions="sincos2d", position_place="every_layer"), "at the stem alone"),
    ("Axial-ViT-B/4", dict(stochastic_depth=0.1), "stochastic_depth=0.1 is drawn for whole"),
    ("Axial-ViT-B/4", dict(registers=2), "no place for tokens before the patches"),
    ("ViT-B/4", dict(rotary="mixed", kv_heads=4), "kv_heads=4 does not suit rotary='mixed'"),
    ("ViT-B/4", dict(differential=True, positions="relative"), "give ViT-B/4 positions='1d'"),
    ("ViT-B/4", dict(differential=True, window=2, pool="gap"), "give ViT-B/4 window=0"),
    (
      "ViT-B/4",
      dict(differential=True, relative_axes=True, pool="gap"),
      "give ViT-B/4 relative_axes=False",
    ),
  ],
)
def test_options_that_do_not_go_together_are_refused(name, options, message):
  with pytest.raises(ValueError, match=message):
    models.create(name, **options)


@pytest.mark.parametrize(
  ("option", "value", "message"),
  [
    ("pool", "token", r"pool='token' is not a choice .*; nearest: .*class_token"),
    ("pool", "auto", "pool='auto' is not a choice"),
    ("qkv_bias", False, "qkv_bias=False is bool; it must be str"),
    ("layer_scale", 1e-5, "layer_scale=1e-05 is float; it must be bool"),
    ("activation", "relu", "activation='relu' is not a choice"),
    ("attention", "flash", "attention='flash' is not a choice"),
    ("dropout", 1.5, "dropout=1.5 is too large"),
    ("registers", -1, r"registers=-1 is too small .* the least is 0\."),
  ],
)
def test_values_that_the_settings_do_not_take_are_refused(option, value, message):
  with pytest.raises(ValueError, match=f"^{message}"):
    models.create("ViT-B/16", **{option: value})


def test_options_may_be_values_of_numpy():
  given = dict(num_classes=np.int64(3), dropout=np.float32(0.1), patch=np.array([8, 16]))
  given |= dict(qk_norm=np.True_, attention="auto")
  expected = dict(num_classes=3, dropout=0.1, patch=(8, 16), qk_norm=True)
  assert models.create("ViT-B/16", **given) == models.create("ViT-B/16", **expected)


@pytest.mark.parametrize(
  ("name", "setting", "same"),
  [
    ("R50x1", dict(heads=8), "Axial-R50"),
    ("ViT-B/16", dict(axial=True, pool="gap"), "Axial-ViT-B/16"),
    ("ViT-B/16", dict(stem_width=64, stages=(3, 4, 9), patch=1), "R50x1+ViT-B/16"),
    ("R50x1+ViT-B/16", dict(stem_width=0, stages=(), patch=16), "ViT-B/16"),
    ("R50x1+ViT-B/16", dict(stem_width=128), "R50x2+ViT-B/16"),
  ],
)
def test_settings_win_over_the_name(name, setting, same):
  given = c.Model(name=name, num_classes=1000, compute_dtype="float32", **setting)
  assert models.configured(given) == models.create(same)


def test_with_all_fields_given_the_name_has_no_meaning():
  fields = models.expanded(c.Model("R50x1+ViT-B/16", 10))
  renamed = dataclasses.replace(fields, name="of no meaning")
  assert models.configured(renamed) == models.configured(fields)


def test_a_config_at_its_defaults_is_the_module_at_its_defaults():
  """`configured` only passes on settings that are given; what is open has the module's value."""
  settings = {**vars(c.Model()), **USUAL, "name": None, "num_classes": 1000}
  for kind in MODULES:
    for field in dataclasses.fields(kind):
      value = settings.get(field.name)
      if field.default is not dataclasses.MISSING and value not in (None, "", 0, ()):
        assert value == field.default, field.name
  for name in ("ViT-B/16", "R50x1", "R50x1+ViT-B/16", "Axial-R50"):
    open_ones = c.Model(name=name, num_classes=1000, compute_dtype="float32")
    assert models.configured(open_ones) == models.create(name)
    assert models.configured(models.expanded(open_ones)) == models.create(name)


def test_every_setting_is_a_field_of_some_module():
  fields = {f.name for kind in MODULES for f in dataclasses.fields(kind)}
  settings = {f.name for f in dataclasses.fields(c.Model)}
  assert settings - fields == {"compute_dtype", "family"} | ({"name"} - fields)


EXACT, HUB = dict(activation="gelu"), dict(activation="gelu", norm_epsilon=1e-12)
DINO_V2 = EXACT | dict(layer_scale=True, layer_scale_init=1e-5)


@pytest.mark.parametrize(
  ("theirs", "ours", "options"),
  [
    ("vit_base_patch16_224", "ViT-B/16", EXACT),
    ("vit_large_patch16_384.augreg_in21k_ft_in1k", "ViT-L/16", EXACT),
    ("timm/vit_tiny_patch16_224", "ViT-Ti/16", EXACT),
    ("hf-hub:timm/vit_tiny_patch16_224.no_such_tag", "ViT-Ti/16", EXACT),
    ("vit_huge_patch14_224_in21k", "ViT-H/14", EXACT),
    ("deit3_small_patch16_224", "ViT-S/16", DINO_V2 | dict(layer_scale_init=1e-6)),
    ("vit_small_patch14_reg4_dinov2.lvd142m", "ViT-S/14", DINO_V2 | dict(registers=4)),
    ("vit_base_patch16_gap_224", "ViT-B/16", EXACT | dict(pool="gap", heads=16)),
    ("vit_so400m_patch16_siglip_gap_512", "ViT-So400m/16", dict(pool="gap")),
    ("vit_large_patch16_siglip_384", "ViT-L/16", EXACT | dict(pool="map")),
    ("vit_giant_patch14_224", "ViT-L/14", EXACT | dict(depth=40, width=1408, mlp_dim=6144)),
    ("vit_base_r50_s16_384.orig_in21k_ft_in1k", "R50x1+ViT-B/16", EXACT | dict(stem_norms="timm")),
    ("vit_base_resnet50_384", "R50x1+ViT-B/16", EXACT | dict(stem_norms="timm")),
    ("vit_base_resnet50_224_in21k", "R50x1+ViT-B/16", EXACT | dict(stem_norms="timm")),
    ("vit_tiny_r_s16_p8_224", "R+ViT-Ti/16", EXACT | dict(stem_norms="timm")),
    ("resnetv2_50x1_bit.goog_in21k", "R50x1", {}),
    ("resnetv2_152x2_bitm", "R152x2", {}),
    ("google/vit-base-patch16-224-in21k", "ViT-B/16", HUB),
    ("facebook/deit-small-patch16-224", "ViT-S/16", HUB),
    ("facebook/dino-vits8", "ViT-S/8", HUB),
    ("facebook/vit-mae-huge", "ViT-H/14", HUB),
    ("facebook/dinov2-base", "ViT-B/14", DINO_V2 | dict(layer_scale_init=1.0)),
    ("google/siglip2-so400m-patch14-384", "ViT-So400m/14", dict(pool="map")),
    ("vit_b_16", "ViT-B/16", EXACT),
    ("ViT-B_16", "ViT-B/16", {}),
    ("B_16-i21k-300ep-lr_0.001.npz", "ViT-B/16", {}),
    ("R26_S_32", "R26+ViT-S/32", {}),
    ("R50+ViT-B_16", "R50x1+ViT-B/16", {}),
    ("BiT-M-R101x3", "R101x3", {}),
  ],
)
def test_what_others_call_a_model_is_the_same_model(theirs, ours, options):
  """That it computes the same is tested in tests/agreement."""
  assert models.create(theirs, num_classes=3) == models.create(ours, num_classes=3, **options)
  with pytest.raises(ValueError, match=rf"is no model; nearest: {re.escape(ours)}[,.]"):
    models.configured(c.Model(theirs, 3))  # settings have our names


@pytest.mark.parametrize(
  ("theirs", "message"),
  [
    (
      "laion/CLIP-ViT-L-14-laion2B-s32B-b82K",
      r"a norm before the blocks.*, which only its weights",
    ),
    ("facebook/dinov3-convnext-tiny-pretrain-lvd1689m", r"convolutions for blocks"),
    ("facebook/data2vec-vision-base-ft1k", r"weights in a form that this project does not read"),
    ("vit_base_mci_224.apple_mclip", r"another stem of convolutions"),
    ("vit_small_resnet26d_224", r"another stem of convolutions"),
    ("naflexvit_base_patch16_gap.e300", r"NaFlex's embedding for images of any proportions"),
    ("google/siglip2-base-patch16-naflex", r"NaFlex's embedding for images of any proportions"),
    ("vit_small_resnet50d_s16_224", r"another stem of convolutions"),
    ("microsoft/beit-base-patch16-224-pt22k", r"relative position embeddings"),
    ("resnet50", r"another stem or normalisation than BiT.*nearest: R50x1[,.]"),
  ],
)
def test_what_is_not_ours_is_refused_by_its_part(theirs, message):
  for make in (models.create, lambda name: models.configured(c.Model(name, 3))):
    with pytest.raises(ValueError, match=f"^name='{theirs}' has {message}"):
      make(theirs)
