"""The image encoders of SigLIP and SigLIP 2 in Transformers.

They are ViTs without class token, which pool by attention (Zhai et al., 2023; Tschannen et al.,
2025). A folder with a text encoder is read without it. The library's classifier reads the mean of
the patches, so its model is one that pools by the mean.
"""

import dataclasses

from vit_jax.extras.formats.model_type import ModelType, rules
from vit_jax.extras.formats.model_types.blocks import OF_CLIP, block, sizes
from vit_jax.weights.card import one_of
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import (
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  SAME,
  TABLE,
  TO_HEADS,
  TO_HEADS_BIAS,
  Table,
  layer,
  norm,
)

_POOLED = "MAPHead_0/MultiHeadDotProductAttention_0"
_REST = Table(
  (POSITIONS, "embeddings.position_embedding.weight", TABLE),
  *block("encoder.layers.{0}", **OF_CLIP),
  *norm("Transformer/encoder_norm", "post_layernorm"),
)
_PARTS = ("query", "key", "value")
_POOLING = Table(
  ("MAPHead_0/probe", "head.probe", SAME),
  *((f"{_POOLED}/{x}/kernel", "head.attention.in_proj_weight", TO_HEADS) for x in _PARTS),
  *((f"{_POOLED}/{x}/bias", "head.attention.in_proj_bias", TO_HEADS_BIAS) for x in _PARTS),
  *layer(f"{_POOLED}/out", "head.attention.out_proj", FROM_HEADS),
  *norm("MAPHead_0/LayerNorm_0", "head.layernorm"),
  *layer("MAPHead_0/MlpBlock_0/Dense_0", "head.mlp.fc1", DENSE),
  *layer("MAPHead_0/MlpBlock_0/Dense_1", "head.mlp.fc2", DENSE),
)
_PATCHES = Table(*layer("embedding", "embeddings.patch_embedding", CONVOLUTION))
_SIZES = dict(
  hidden_act="gelu_pytorch_tanh",
  layer_norm_eps=1e-6,
  hidden_size=768,
  num_hidden_layers=12,
  intermediate_size=3072,
  patch_size=16,
  vision_use_head=(one_of(True, False), True),
)
TEXT = r"text_model\..*|logit_(scale|bias)|.*\.position_ids"  # not in the image encoder
CLASSIFIER = "SiglipForImageClassification"
PLAIN = "SiglipVisionModel"
WITH_TEXT = "SiglipModel"


def _here(flat: dict, settings: dict) -> dict:
  """The arrays; without those of the attention pooling if a classifier does not use it."""
  if settings["architectures"] != [CLASSIFIER]:
    return flat
  return {name: x for name, x in flat.items() if not name.startswith("MAPHead_0/")}


SIGLIP_VISION = ModelType(
  plain=PLAIN,
  names=_PATCHES + _REST + _POOLING,
  prefix="vision_model.",
  plain_prefix="vision_model.",
  computed=rules(PLAIN, kinds=("siglip_vision_model",), **_SIZES),
  sizes=lambda module: sizes(module) | {"vision_use_head": module.pool == "map"},
  fields={"pool": one_of("map", "gap")},
  position_resizing="bicubic",
  processor="Siglip",
  left_out=TEXT,
)
SIGLIP = dataclasses.replace(
  SIGLIP_VISION,
  plain=WITH_TEXT,
  headed=CLASSIFIER,
  part="vision_config",
  computed=rules(WITH_TEXT, CLASSIFIER, kinds=("siglip",), **_SIZES),
  sizes=sizes,
  here=_here,
  written=False,
)
