"""Converts parameters from and to timm's names, as timm saves and loads them (`state_dict`).

Names and layouts are those of timm's VisionTransformer, with or without a ResNet below it, and of
its ResNetV2 with BiT's stem. Some of timm's models, and all with registers, add position embeddings
to the patches alone. Reading adds zeros for the other tokens; writing a model with registers leaves
these zeros out. The names in DINOv2's own files and in DeiT III's, and the representation layer of
timm's earlier models, can be read too.
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
_UNIT = "block{1}/unit{1}"
_THEIR_UNIT = f"{_ROOT}.stages.{{0}}.blocks.{{0}}"
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
    for i, letter in enumerate("abc", start=1)
    for row in (
      *norm(f"{_BIT_UNIT}/{letter}/group_norm", f"stages.{{0}}.blocks.{{0}}.norm{i}"),
      (f"{_BIT_UNIT}/{letter}/{_CONV}", f"stages.{{0}}.blocks.{{0}}.conv{i}.weight", CONVOLUTION),
    )
  ),
  (f"{_BIT_UNIT}/a/proj/{_CONV}", "stages.{0}.blocks.{0}.downsample.conv.weight", CONVOLUTION),
  *norm("resnet/group_norm", "norm"),
  ("head/kernel", "head.fc.weight", AS_CONVOLUTION),
  ("head/bias", "head.fc.bias", SAME),
)
_TABLES = (_VIT, _WITH_ROOT, _HYBRID, _BIT)
_EARLIER = Table(*layer("pre_logits", "pre_logits.fc", DENSE))  # timm no longer has this layer
_READ = (*(table + _EARLIER for table in (_VIT, _WITH_ROOT, _HYBRID)), _BIT)

ACTIVATION = "gelu"  # of timm's models, unless they name another
RESAMPLING = "torchvision_bicubic"
POSITION_RESIZING = "bicubic_antialiased"
MASKED = "mask_token"  # in DINOv2's own files
_BEGINNINGS = ("patch_embed.", "blocks.0.", "stem.conv", "stages.0.blocks.0.")
# What timm's models have and ours do not, by the names of the parameters.
_LACKING = {
  r"dist_token|head_dist\..*": "a distillation token",
  r"norm_pre\..*": "a norm before the blocks, as CLIP has",
  r"fc_norm\..*": "a norm after pooling (fc_norm)",
  r".*(relative_position|rel_pos).*": "timm's relative position embeddings",
  r".*\.mlp\.(fc1_[gx]|w[0-9]+)\..*": "a gated MLP (SwiGLU)",
  r"(.*\.)?rope\..*|.*\.attn\.[qv]_bias": "rotary positions, or another attention than timm's ViT",
  r"stem\.(conv|norm)[123]\..*": "a ResNet's deep stem",
}
_TRAINING = re.compile(r"mask_token|masked_embed|decoder.*")  # only used to train with masks
# (name in another file, timm's name): DeiT III, and DINOv2 with its blocks in chunks.
_SPELLINGS = (
  (re.compile(r"(blocks\.[0-9]+)\.gamma_([12])"), r"\1.ls\2.gamma"),
  (re.compile(r"blocks\.[0-9]+\.([0-9]+\..*)"), r"blocks.\1"),
)
_REGISTERS = "register_tokens"  # in files of DINOv2 itself
_log = logging.getLogger(__name__)
# Heads by width, above 1,024; up to 1,024, timm's models have 64 channels a head.
_HEADS = dict.fromkeys((1152, 1280, 1408, 1664), 16)


def recognised(names) -> bool:
  """Whether the names of a file's arrays are timm's."""
  return any(name.startswith(_BEGINNINGS) for name in names)


def to_timm(params: dict) -> dict[str, np.ndarray]:
  """Makes timm's state dictionary from our tree, blocks unstacked.

  Raises:
    ValueError: timm's models have no place for a parameter, which the message names.
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
    heads: attention heads; 0: as many as timm's models of this width have.
    side: side in pixels of the square images that the position embeddings are for; 0: unknown.
    ours: whether this project wrote the file, so that nothing is ambiguous.

  Raises:
    ValueError: the model has something that ours do not have, which the message names; or it is
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
  """How the position embeddings of a file with these names are resized.

  As in the code of their authors for masked autoencoders with their decoder
  (`interpolate_pos_embed`: bicubic without antialiasing), and for DINOv2's own files without
  registers.
  """
  if any(name.startswith("decoder") for name in names):
    return "bicubic"
  if MASKED in names and _REGISTERS not in names:
    return "bicubic_offset"
  return POSITION_RESIZING


def stem_norms(params: dict) -> str:
  """The `stem_norms` of timm's model with these parameters; the usual ones without a ResNet."""
  return "timm" if "conv_root" in params else USUAL["stem_norms"]


def heads_of(flat: dict[str, np.ndarray]) -> int:
  """The number of heads in timm's models with the width of these arrays; 0 if there are no blocks.

  Raises:
    ValueError: timm's models of this width differ, or there are none.
  """
  if "blocks.0.norm1.weight" not in flat:
    return 0
  width = flat["blocks.0.norm1.weight"].size
  heads = _HEADS.get(width, 0)
  if width <= 1024:
    heads = width // 64
  if not heads or width % heads:
    raise ValueError(
      f"nothing tells how many attention heads a model of width {width} has; put a config.json "
      'beside the file that says it, {"architecture": NAME, "model_args": {"num_heads": HEADS}}'
    )
  return heads


def _check_layers(flat):
  """Refuses a gated MLP, and attention without biases, which the names alone do not reveal."""
  first = np.shape(flat.get("blocks.0.mlp.fc1.weight"))
  second = np.shape(flat.get("blocks.0.mlp.fc2.weight"))
  if len(first) == len(second) == 2 and first[0] == 2 * second[1]:
    raise ValueError(
      f"it has a gated MLP (SwiGLU; blocks.0.mlp.fc1 is {first}), which no model of this project "
      "has"
    )
  if "blocks.0.attn.qkv.weight" in flat and "blocks.0.attn.qkv.bias" not in flat:
    raise ValueError(
      "its attention has no biases (blocks.0.attn.qkv.bias), as in models with rotary positions "
      "such as DINOv3, which no model of this project has"
    )


def _for_images(flat):
  """Leaves out arrays that only training with masked patches needs."""
  others = sorted(filter(_TRAINING.fullmatch, flat))
  if others:
    _log.warning(
      "Left out, because only training with masked patches needs it: %s.", listed(others)
    )
  return {name: array for name, array in flat.items() if name not in others}


def _respelled(flat):
  """The arrays under timm's current names.

  Raises:
    ValueError: two names mean the same array.
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
  """Renames DINOv2's own registers to timm's name; adds position embeddings of zeros for them."""
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
  before = _before(flat)
  table = np.asarray(flat[POSITIONS])
  if table[:, :before].any():
    return flat
  return flat | {POSITIONS: table[:, before:]}


def _before(flat) -> int:
  """The number of tokens before the patches."""
  return sum(flat[name].shape[1] for name in ("cls", "register_tokens") if name in flat)


def _card(path: pathlib.Path, params: dict, names: Iterable[str]) -> Card:
  """What timm's models have in common; warns that nothing else is known about this one."""
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
