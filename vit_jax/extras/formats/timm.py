"""Parameters under timm's names, as timm saves and loads them (`state_dict`), in both directions.

Names and layouts are those of timm's VisionTransformer, with or without a ResNet below it, and of
its ResNetV2 with BiT's stem. Some of timm's models add position embeddings to the patches alone,
and all with registers do; such embeddings get zeros for the other tokens here, and such zeros are
left out where a model with registers is written. Read are also the names of DINOv2's own files, of
DeiT III's, and the representation layer of timm's earlier models.
"""

import dataclasses
import logging
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from vit_jax.config.model import USUAL, Model
from vit_jax.process.text import listed
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import card, position_count
from vit_jax.weights.card import Card
from vit_jax.weights.format import ArrayNames
from vit_jax.weights.published import POSITIONS
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
  ("register_tokens", "reg_token", SAME),
  (POSITIONS, "pos_embed", SAME),
  *layer("embedding", "patch_embed.proj", CONVOLUTION),
  *norm(f"{_BLOCK}/LayerNorm_0", "blocks.{0}.norm1"),
  *to_heads(f"{_ATTENTION}/query", "blocks.{0}.attn.qkv"),
  *to_heads(f"{_ATTENTION}/key", "blocks.{0}.attn.qkv"),
  *to_heads(f"{_ATTENTION}/value", "blocks.{0}.attn.qkv"),
  *norm(f"{_ATTENTION}/LayerNorm_query", "blocks.{0}.attn.q_norm"),
  *norm(f"{_ATTENTION}/LayerNorm_key", "blocks.{0}.attn.k_norm"),
  *layer(f"{_ATTENTION}/out", "blocks.{0}.attn.proj", FROM_HEADS),
  (f"{_BLOCK}/LayerScale_1/scale", "blocks.{0}.ls1.gamma", SAME),
  (f"{_BLOCK}/LayerScale_3/scale", "blocks.{0}.ls2.gamma", SAME),
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
_EARLIER = Table(*layer("pre_logits", "pre_logits.fc", DENSE))  # timm has no such layer any more
_READ = (*(table + _EARLIER for table in (_VIT, _WITH_ROOT, _HYBRID)), _BIT)

ACTIVATION = "gelu"  # of timm's models, unless they ask for another
RESAMPLING, POSITION_RESIZING = "torchvision_bicubic", "bicubic_antialiased"
MASKED = "mask_token"  # in DINOv2's own files
_BEGINNINGS = ("patch_embed.", "blocks.0.", "stem.conv", "stages.0.blocks.0.")
# Parts of timm's models that ours do not have, by the names of their parameters.
_LACKING = {
  r"dist_token|head_dist\..*": "a distillation token",
  r"norm_pre\..*": "a norm before the blocks, as CLIP has",
  r"fc_norm\..*": "a norm after pooling (fc_norm)",
  r".*(relative_position|rel_pos).*": "timm's relative position embeddings",
  r".*\.mlp\.(fc1_[gx]|w[0-9]+)\..*": "a gated MLP (SwiGLU)",
  r"(.*\.)?rope\..*|.*\.attn\.[qv]_bias": "rotary positions, or another attention than timm's ViT",
  r"stem\.(conv|norm)[123]\..*": "a ResNet's deep stem",
}
_TRAINING = re.compile(r"mask_token|masked_embed|decoder.*")  # of masked patches: no image has them
# Names in files of others, and timm's: those of DeiT III, and DINOv2 with its blocks in chunks.
_SPELLINGS = (
  (re.compile(r"(blocks\.[0-9]+)\.gamma_([12])"), r"\1.ls\2.gamma"),
  (re.compile(r"blocks\.[0-9]+\.([0-9]+\..*)"), r"blocks.\1"),
)
_REGISTERS = "register_tokens"  # in files of DINOv2 itself
_log = logging.getLogger(__name__)
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
  flat = _of_patches_alone(flatten(params))
  try:
    return nearest(_TABLES, flat, OURS).theirs(flat)
  except KeyError as error:
    raise ValueError(f"timm's models have no place for {error.args[0]}") from error


def from_timm(
  flat: dict[str, np.ndarray],
  heads: int = 0,
  side: int = 0,
  *,
  ours: bool = False,
) -> dict:
  """Makes our tree from timm's state dictionary.

  Position embeddings without entries for the tokens before the patches get zeros for them.

  Args:
    flat: {timm's name: array}.
    heads: attention heads; 0: as timm's models of this width have.
    side: of the square images that the position embeddings are for, pixels; 0: unknown.
    ours: whether this project wrote the file, so that nothing is ambiguous.

  Raises:
    ValueError: the arrays are of a model with parts that ours do not have, which is named; or it is
      unclear which tokens the position embeddings are for.
  """
  for name in flat:
    for pattern, what in _LACKING.items():
      if re.fullmatch(pattern, name):
        raise ValueError(f"it has {what} ({name}), which no model of this project has")
  flat = _with_registers(_respelled(_for_images(flat)))
  _check_layers(flat)
  table = nearest(_READ, flat, THEIRS)
  if lacking := table.lacking(flat, THEIRS):
    raise ValueError(
      f"{lacking[0]} is a part that neither the Vision Transformers, hybrids nor BiT of this "
      "project have"
    )
  tree = nest(table.ours(flat, heads or heads_of(flat)))
  return position_count.for_all_tokens(tree, side, sure=ours)


def position_resizing(names) -> str:
  """The rule for position embeddings of a file with these names.

  Of DINOv2's own files, those without registers have the rule of its own code. Masked autoencoders
  with their decoder have that of theirs (`interpolate_pos_embed`), bicubic without antialiasing.
  """
  if any(name.startswith("decoder") for name in names):
    return "bicubic"
  if MASKED in names and _REGISTERS not in names:
    return "bicubic_offset"
  return POSITION_RESIZING


def stem_norms(params: dict) -> str:
  """How timm normalises the ResNet of a model with these parameters; the usual one without it."""
  return "timm" if "conv_root" in params else USUAL["stem_norms"]


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
      f"nothing tells how many attention heads a model of width {width} has; put a config.json "
      'beside the file that says it, {"architecture": NAME, "model_args": {"num_heads": HEADS}}'
    )
  return heads


def _check_layers(flat):
  """Refuses a gated MLP, and attention without biases, which the names alone do not tell."""
  hidden = [np.shape(flat.get(f"blocks.0.mlp.{name}.weight")) for name in ("fc1", "fc2")]
  if len(hidden[0]) == len(hidden[1]) == 2 and hidden[0][0] == 2 * hidden[1][1]:
    raise ValueError(
      f"it has a gated MLP (SwiGLU; blocks.0.mlp.fc1 is {hidden[0]}), which no model of this "
      "project has"
    )
  if "blocks.0.attn.qkv.weight" in flat and "blocks.0.attn.qkv.bias" not in flat:
    raise ValueError(
      "its attention has no biases (blocks.0.attn.qkv.bias), as in models with rotary positions "
      "such as DINOv3, which no model of this project has"
    )


def _for_images(flat):
  """Leaves out what only training with masked patches needs."""
  others = sorted(filter(_TRAINING.fullmatch, flat))
  if others:
    _log.warning(
      "Left out, because only training with masked patches needs it: %s.", listed(others)
    )
  return {name: array for name, array in flat.items() if name not in others}


def _respelled(flat):
  """The arrays under timm's names of today.

  Raises:
    ValueError: two names mean the same.
  """
  renamed = {}
  for name, array in flat.items():
    for pattern, usual in _SPELLINGS:
      name = pattern.sub(usual, name)
    if name in renamed:
      raise ValueError(f"two arrays mean {name}")
    renamed[name] = array
  return renamed


def _with_registers(flat):
  """DINOv2's own registers under timm's name; position embeddings of zeros for them."""
  if _REGISTERS not in flat:
    return flat
  if "reg_token" in flat:
    raise ValueError(f"two arrays are the registers: reg_token and {_REGISTERS}")
  registers = flat[_REGISTERS]
  renamed = {name: array for name, array in flat.items() if name != _REGISTERS}
  if "pos_embed" in renamed:
    renamed["pos_embed"] = position_count.with_registers(renamed["pos_embed"], registers.shape[1])
  return renamed | {"reg_token": registers}


def _of_patches_alone(flat):
  """Leaves out zeros for the tokens before the patches, as timm's models with registers do."""
  if "register_tokens" not in flat or POSITIONS not in flat:
    return flat
  before, table = _before(flat), np.asarray(flat[POSITIONS])
  return flat if table[:, :before].any() else flat | {POSITIONS: table[:, before:]}


def _before(flat) -> int:
  return sum(flat[name].shape[1] for name in ("cls", "register_tokens") if name in flat)


def _card(path: pathlib.Path, params: dict, names: Iterable[str]) -> Card:
  """What timm's models have in common; a warning says that nothing else tells it."""
  _log.warning(
    "%s has timm's names, and nothing says how its model computes. Taken as usual in timm: exact "
    "GELU, as many heads as models of this width have, the mean of the patches where there is no "
    "class token, square images, resized bicubically, as (pixel - 127.5) / 127.5. If they are not "
    "(DeiT, DINO and MAE have other images), put timm's config.json beside it.",
    path,
  )
  usual = dict(
    model=Model(activation=ACTIVATION, stem_norms=stem_norms(params)),
    resampling=RESAMPLING,
    position_resizing=position_resizing(names),
  )
  return dataclasses.replace(card.inferred(params), **usual)


NAMES = ArrayNames(
  name="timm",
  recognised=recognised,
  load=lambda flat, heads, ours: from_timm(flat, heads, ours=ours),
  save=to_timm,
  card=_card,
)
