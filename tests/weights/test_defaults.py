"""What a key means that a configuration of another library does not have: the library's default.

The values are pinned here for ViT and timm; where the library is installed, all are compared with
its own.
"""

import dataclasses
import importlib

import pytest

from vit_jax.extras.formats import huggingface, timm, timm_hub
from vit_jax.models.layers import EPSILON
from vit_jax.registry import MODEL_TYPES

VIT = dict(
  hidden_act="gelu",
  layer_norm_eps=1e-12,
  num_attention_heads=12,
  num_channels=3,
  problem_type=None,
  image_size=224,
  patch_size=16,
  hidden_size=768,
  num_hidden_layers=12,
  intermediate_size=3072,
  qkv_bias=True,
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
  [(MODEL_TYPES["vit"].computed, VIT), (timm_hub.IMAGES, TIMM)],
  ids=["vit", "timm"],
)


def plain(value):
  return tuple(value) if isinstance(value, list) else value


def known_to(rules):
  return {key: plain(default) for key, (_, default) in rules.items() if key not in OTHERS}


@TABLES
def test_defaults(rules, pinned):
  assert known_to(rules) == pinned


def config_of(name):
  """The library's configuration of the image encoder of a model type."""
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  config = transformers.CONFIG_MAPPING[name]()
  if part := MODEL_TYPES[name].part:
    return getattr(config, part)
  return config


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_defaults_are_those_of_transformers(name):
  config = config_of(name)
  ours = known_to(MODEL_TYPES[name].computed)
  assert {key: getattr(config, key) for key in ours} == ours


# Keys that change nothing of what is computed here, only training, text or what else is returned.
APART = {
  *("_name_or_path", "add_cross_attention", "architectures", "attention_dropout", "dtype"),
  *("attention_probs_dropout_prob", "chunk_size_feed_forward", "drop_path_rate", "encoder_stride"),
  *("hidden_dropout_prob", "id2label", "initializer_factor", "initializer_range", "label2id"),
  *("is_encoder_decoder", "layerscale_value", "out_features", "out_indices", "output_attentions"),
  *("output_hidden_states", "pooler_act", "pooler_output_size", "projection_dim", "return_dict"),
  *("reshape_hidden_states", "stage_names", "transformers_version", "use_mask_token"),
  *("pos_embed_jitter", "pos_embed_rescale", "pos_embed_shift"),  # of training
  *("norm_pix_loss", "mask_ratio", "decoder_hidden_size", "decoder_intermediate_size"),
  *("add_fpn", "auxiliary_channels", "auxiliary_concat_input", "auxiliary_loss_weight"),
  *("auxiliary_num_convs", "pool_scales", "semantic_loss_ignore_index", "use_auxiliary_head"),
  "vocab_size",  # of what BEiT predicts
  *("decoder_num_attention_heads", "decoder_num_hidden_layers"),
}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_every_key_of_transformers_is_known(name):
  """If a later version of transformers adds a key, say here or in the type what it does."""
  keys = config_of(name).to_dict().keys() - APART
  assert keys <= MODEL_TYPES[name].computed.keys(), keys - MODEL_TYPES[name].computed.keys()


def test_two_classes_have_the_names_that_transformers_does_not_write():
  transformers = pytest.importorskip("transformers", reason="transformers is not installed")
  kind = MODEL_TYPES["vit"]
  named = huggingface._class_names(dict(id2label=None, architectures=[kind.headed]))
  assert dict(enumerate(named)) == transformers.ViTConfig().id2label


def test_defaults_are_those_of_timm():
  peer = importlib.import_module("tests.agreement.timm_models")
  cfg = dataclasses.asdict(peer.timm.models.PretrainedCfg())
  assert {key: cfg[key] for key in TIMM} == TIMM
  with peer.torch.device("meta"):
    model = peer.timm.models.VisionTransformer(depth=1)
  assert type(model.blocks[0].mlp.act) is peer.torch.nn.GELU
  assert model.blocks[0].mlp.act.approximate == "none"
  assert ("gelu", model.norm.eps) == (timm.ACTIVATION, EPSILON)
