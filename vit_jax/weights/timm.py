"""Parameters under timm's names, as timm saves and loads them (`state_dict`), in both directions.

Names and layouts are those of timm's VisionTransformer, with or without a ResNet below it, and of
its ResNetV2 with BiT's stem.
"""

import re

import numpy as np

from vit_jax.storage.tree import flatten, nest
from vit_jax.weights.card import STEM_NORMS
from vit_jax.weights.published import POSITIONS, with_class_token
from vit_jax.weights.translation import (
  AS_CONVOLUTION,
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  OURS,
  SAME,
  THEIRS,
  Table,
  layer,
  nearest,
  norm,
  to_heads,
)

_BLOCK = "Transformer/encoderblock_{0}"
_ATTENTION = f"{_BLOCK}/MultiHeadDotProductAttention_1"
_POOLED = "MAPHead_0/MultiHeadDotProductAttention_0"
_VIT = Table(
  ("cls", "cls_token", SAME),
  (POSITIONS, "pos_embed", SAME),
  *layer("embedding", "patch_embed.proj", CONVOLUTION),
  *norm(f"{_BLOCK}/LayerNorm_0", "blocks.{0}.norm1"),
  *to_heads(f"{_ATTENTION}/query", "blocks.{0}.attn.qkv"),
  *to_heads(f"{_ATTENTION}/key", "blocks.{0}.attn.qkv"),
  *to_heads(f"{_ATTENTION}/value", "blocks.{0}.attn.qkv"),
  *layer(f"{_ATTENTION}/out", "blocks.{0}.attn.proj", FROM_HEADS),
  *norm(f"{_BLOCK}/LayerNorm_2", "blocks.{0}.norm2"),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_0", "blocks.{0}.mlp.fc1", DENSE),
  *layer(f"{_BLOCK}/MlpBlock_3/Dense_1", "blocks.{0}.mlp.fc2", DENSE),
  *norm("Transformer/encoder_norm", "norm"),
  ("MAPHead_0/probe", "attn_pool.latent", SAME),
  *to_heads(f"{_POOLED}/query", "attn_pool.q"),
  *to_heads(f"{_POOLED}/key", "attn_pool.kv"),
  *to_heads(f"{_POOLED}/value", "attn_pool.kv"),
  *layer(f"{_POOLED}/out", "attn_pool.proj", FROM_HEADS),
  *norm("MAPHead_0/LayerNorm_0", "attn_pool.norm"),
  *layer("MAPHead_0/MlpBlock_0/Dense_0", "attn_pool.mlp.fc1", DENSE),
  *layer("MAPHead_0/MlpBlock_0/Dense_1", "attn_pool.mlp.fc2", DENSE),
  *layer("head", "head", DENSE),
)
_ROOT = "patch_embed.backbone"
_UNIT, _THEIR_UNIT = "block{1}/unit{1}", f"{_ROOT}.stages.{{0}}.blocks.{{0}}"
_WITH_ROOT = _VIT + Table(
  ("conv_root/kernel", f"{_ROOT}.conv.weight", CONVOLUTION),
  *norm("gn_root", f"{_ROOT}.norm"),
)
_HYBRID = _VIT + Table(
  ("conv_root/kernel", f"{_ROOT}.stem.conv.weight", CONVOLUTION),
  *norm("gn_root", f"{_ROOT}.stem.norm"),
  *((f"{_UNIT}/conv{i}/kernel", f"{_THEIR_UNIT}.conv{i}.weight", CONVOLUTION) for i in (1, 2, 3)),
  *(row for i in (1, 2, 3) for row in norm(f"{_UNIT}/gn{i}", f"{_THEIR_UNIT}.norm{i}")),
  (f"{_UNIT}/conv_proj/kernel", f"{_THEIR_UNIT}.downsample.conv.weight", CONVOLUTION),
  *norm(f"{_UNIT}/gn_proj", f"{_THEIR_UNIT}.downsample.norm"),
)
_BIT_UNIT = "resnet/block{1}/unit{01}"
_CONV = "standardized_conv2d/kernel"
_BIT = Table(
  (f"resnet/root_block/{_CONV}", "stem.conv.weight", CONVOLUTION),
  *(
    row
    for i, part in enumerate("abc", start=1)
    for row in (
      *norm(f"{_BIT_UNIT}/{part}/group_norm", f"stages.{{0}}.blocks.{{0}}.norm{i}"),
      (f"{_BIT_UNIT}/{part}/{_CONV}", f"stages.{{0}}.blocks.{{0}}.conv{i}.weight", CONVOLUTION),
    )
  ),
  (f"{_BIT_UNIT}/a/proj/{_CONV}", "stages.{0}.blocks.{0}.downsample.conv.weight", CONVOLUTION),
  *norm("resnet/group_norm", "norm"),
  ("head/kernel", "head.fc.weight", AS_CONVOLUTION),
  ("head/bias", "head.fc.bias", SAME),
)
_TABLES = (_VIT, _WITH_ROOT, _HYBRID, _BIT)

ACTIVATION = "gelu"  # of timm's models, unless they ask for another
_BEGINNINGS = ("patch_embed.", "blocks.0.", "stem.conv", "stages.0.blocks.0.")
# Parts of timm's models that ours do not have, by the names of their parameters.
_LACKING = {
  r"reg_token": "register tokens",
  r"dist_token|head_dist\..*": "a distillation token",
  r"mask_token|decoder.*": "a decoder of masked pre-training",
  r"norm_pre\..*": "a norm before the blocks, as CLIP has",
  r"fc_norm\..*": "a norm after pooling (fc_norm)",
  r".*\.(q_norm|k_norm)\..*": "norms of queries and keys",
  r".*(relative_position|rel_pos).*": "timm's relative position embeddings",
  r"stem\.(conv|norm)[123]\..*": "a ResNet's deep stem",
}
_LAYER_SCALE = re.compile(r"(blocks\.[0-9]+)\.(?:ls([12])\.gamma|gamma_([12]))")
_SCALED = {"1": "attn.proj", "2": "mlp.fc2"}
# Where the width does not tell the heads: up to 1,024, timm's models have 64 channels a head.
_HEADS = dict.fromkeys((1152, 1280, 1408, 1664), 16)


def recognised(names) -> bool:
  """Whether the names of a file's arrays are timm's."""
  return any(name.startswith(_BEGINNINGS) for name in names)


def to_timm(params: dict) -> dict[str, np.ndarray]:
  """Makes timm's state dictionary from our tree, blocks unstacked.

  Raises:
    ValueError: timm's models have no place for a parameter; names it.
  """
  flat = flatten(params)
  try:
    return nearest(_TABLES, flat, OURS).theirs(flat)
  except KeyError as error:
    raise ValueError(f"timm's models have no place for {error.args[0]}") from error


def from_timm(flat: dict[str, np.ndarray], heads: int = 0) -> dict:
  """Makes our tree from timm's state dictionary.

  Layer scale (DeiT-3, DINOv2) is multiplied into the layer before it, and position embeddings
  without an entry for the class token get one of zeros: the function stays the same.

  Args:
    flat: {timm's name: array}.
    heads: attention heads; 0: as timm's models of this width have.

  Raises:
    ValueError: the arrays are of a model with parts that ours do not have; names the part.
  """
  for name in flat:
    for pattern, what in _LACKING.items():
      if re.fullmatch(pattern, name):
        raise ValueError(f"it has {what} ({name}), which no model of this project has")
  flat = _without_layer_scale(flat)
  table = nearest(_TABLES, flat, THEIRS)
  if lacking := table.lacking(flat, THEIRS):
    raise ValueError(
      f"{lacking[0]} is a part that neither the Vision Transformers, hybrids nor BiT of this "
      "project have"
    )
  ours = table.ours(flat, heads or heads_of(flat))
  tokens = np.shape(ours.get(POSITIONS))[1:2]
  if "cls" in ours and tokens and tokens[0] == round(tokens[0] ** 0.5) ** 2:
    ours[POSITIONS] = with_class_token(ours[POSITIONS], True)
  return nest(ours)


def stem_norms(params: dict) -> str:
  """How timm normalises the ResNet of a model with these parameters; the usual one without it."""
  return "timm" if "conv_root" in params else STEM_NORMS[0]


def heads_of(flat: dict[str, np.ndarray]) -> int:
  """The attention heads of timm's models with the width of these arrays; 0: they have no blocks.

  Raises:
    ValueError: its models of this width differ, or there is none.
  """
  if "blocks.0.norm1.weight" not in flat:
    return 0
  width = flat["blocks.0.norm1.weight"].size
  heads = _HEADS.get(width, width // 64 if width <= 1024 else 0)
  if not heads or width % heads:
    raise ValueError(
      f"nothing tells how many attention heads a model of width {width} has; put timm's "
      "config.json of the model beside the file"
    )
  return heads


def _without_layer_scale(flat):
  flat = dict(flat)
  for name in [name for name in flat if _LAYER_SCALE.fullmatch(name)]:
    block, *which = _LAYER_SCALE.fullmatch(name).groups()
    gamma = flat.pop(name).astype(np.float32)
    for part in ("weight", "bias"):
      scaled = f"{block}.{_SCALED[which[0] or which[1]]}.{part}"
      if scaled in flat:
        array = flat[scaled].astype(np.float32)
        flat[scaled] = array * gamma.reshape(-1, *[1] * (array.ndim - 1))
  return flat
