"""What a key means that a configuration of another library does not have: the library's default.

The values are pinned here; where the library is installed, they are compared with its own.
"""

import dataclasses
import importlib

import pytest

from vit_jax.extras.formats import dinov2, huggingface, timm, timm_hub
from vit_jax.models.layers import EPSILON

VIT = dict(
  hidden_act="gelu",
  layer_norm_eps=1e-12,
  num_attention_heads=12,
  num_channels=3,
  qkv_bias=True,
  problem_type=None,
  image_size=224,
)
DINOV2 = dict(
  hidden_act="gelu",
  layer_norm_eps=1e-6,
  num_attention_heads=12,
  num_channels=3,
  qkv_bias=True,
  image_size=224,
  apply_layernorm=True,
  use_swiglu_ffn=False,
)
TIMM = dict(
  mean=(0.485, 0.456, 0.406),
  std=(0.229, 0.224, 0.225),
  crop_pct=0.875,
  crop_mode="center",
  interpolation="bicubic",
  label_names=None,
)
# Of these keys, one is not needed, and others are not of the library or not of its configuration.
OTHERS = {
  "architectures",
  "model_type",
  "pruned_heads",
  "quantization_config",
  "representation",
  "average",
  "positions",
  "resampling",
  "position_resizing",
  "input_size",
  "global_pool",
}
TABLES = pytest.mark.parametrize(
  ("rules", "pinned"),
  [(huggingface.COMPUTED, VIT), (dinov2.COMPUTED, DINOV2), (timm_hub.IMAGES, TIMM)],
  ids=["vit", "dinov2", "timm"],
)


def plain(value):
  return tuple(value) if isinstance(value, list) else value


@TABLES
def test_defaults(rules, pinned):
  found = {key: plain(default) for key, (_, default) in rules.items() if key not in OTHERS}
  assert found == pinned


@pytest.mark.parametrize(
  ("kind", "pinned"),
  [("ViT", VIT), ("ViTMAE", VIT), ("Dinov2", DINOV2), ("Dinov2WithRegisters", DINOV2)],
)
def test_defaults_are_those_of_transformers(kind, pinned):
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  config = getattr(transformers, f"{kind}Config")()
  assert {key: getattr(config, key) for key in pinned} == pinned
  named = huggingface._class_names(dict(id2label=None, architectures=huggingface.WITH_HEAD))
  assert dict(enumerate(named)) == config.id2label


def test_defaults_are_those_of_timm():
  peer = importlib.import_module("tests.agreement.timm_models")
  cfg = dataclasses.asdict(peer.timm.models.PretrainedCfg())
  assert {key: cfg[key] for key in TIMM} == TIMM
  with peer.torch.device("meta"):
    model = peer.timm.models.VisionTransformer(depth=1)
  assert type(model.blocks[0].mlp.act) is peer.torch.nn.GELU
  assert model.blocks[0].mlp.act.approximate == "none"
  assert ("gelu", model.norm.eps) == (timm.ACTIVATION, EPSILON)
