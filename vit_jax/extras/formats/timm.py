"""Converts parameters from and to timm's names, as timm saves and loads them (`state_dict`).

Names and layouts are those of timm's VisionTransformer, with or without a ResNet below it, and of
its ResNetV2 with BiT's stem. Some of timm's models, and most with registers, add position
embeddings to the patches alone. Reading adds zeros for the other tokens; writing leaves such zeros
out. The names in DINOv2's own files and in DeiT III's, and the representation layer of
timm's earlier models, can be read too.
"""

import dataclasses
import logging
import pathlib
import re
from collections.abc import Collection, Iterable

import numpy as np

from vit_jax.config import Size
from vit_jax.config.model import FIXED_POSITIONS, USUAL, Model
from vit_jax.extras.formats import meta, timm_blocks
from vit_jax.models import relative_bias, rotary
from vit_jax.models.attention import AXES
from vit_jax.models.recognition import UNKNOWN, module_of
from vit_jax.process.text import listed
from vit_jax.storage.tree import flatten, nest
from vit_jax.weights import card, position_count
from vit_jax.weights.card import Card
from vit_jax.weights.format import (
  NO_HEADS,
  ArrayNames,
  Heads,
  heads_for_timm,
  heads_in_timm,
  pooling_in_timm,
)
from vit_jax.weights.published import POSITIONS
from vit_jax.weights.translation import (
  AS_CONVOLUTION,
  CONVOLUTION,
  DENSE,
  FROM_HEADS,
  OURS,
  SAME,
  THEIRS,
  TO_HEADS,
  Layout,
  Row,
  Table,
  layer,
  nearest,
  norm,
  to_heads,
)

_BLOCK = "Transformer/encoderblock_{0}"
_POOLED = "MAPHead_0/MultiHeadDotProductAttention_0"
# (in, heads, out) here, (heads * out, in) there, where heads of keys and values may be fewer.
_TO_KEY_HEADS = Layout(
  TO_HEADS.there,
  lambda x, heads: x.T.reshape(x.shape[1], -1, x.shape[1] // heads),
)
_KEY_BIAS = Layout(lambda x: x.reshape(-1), lambda x, heads: x)  # shaped by its kernel afterwards


def _block(suffix: str) -> tuple[Row, ...]:
  """The rows of a block, or of a further branch of it, under the one naming."""
  attention = f"{_BLOCK}/MultiHeadDotProductAttention_1{suffix}"
  mlp = f"{_BLOCK}/MlpBlock_3{suffix}"
  theirs = f"blocks.{{0}}.attn{suffix}"
  return (
    *norm(f"{_BLOCK}/LayerNorm_0{suffix}", f"blocks.{{0}}.norm1{suffix}"),
    *to_heads(f"{attention}/query", f"{theirs}.q_proj"),
    *(
      row
      for ours, name in (("key", "k_proj"), ("value", "v_proj"))
      for row in (
        (f"{attention}/{ours}/kernel", f"{theirs}.{name}.weight", _TO_KEY_HEADS),
        (f"{attention}/{ours}/bias", f"{theirs}.{name}.bias", _KEY_BIAS),
      )
    ),
    *norm(f"{attention}/LayerNorm_query", f"{theirs}.q_norm"),
    *norm(f"{attention}/LayerNorm_key", f"{theirs}.k_norm"),
    *norm(f"{attention}/LayerNorm_heads", f"{theirs}.norm"),
    *norm(f"{attention}/LayerNorm_head", f"{theirs}.sub_norm"),
    *(
      (f"{attention}/lambda_{ours}_{i}/scale", f"{theirs}.lambda_{name}{i}", SAME)
      for ours, name in (("query", "q"), ("key", "k"))
      for i in (1, 2)
    ),
    (f"{attention}/{AXES[0]}", f"{theirs}.rel_pos_h", SAME),
    (f"{attention}/{AXES[1]}", f"{theirs}.rel_pos_w", SAME),
    (f"{attention}/{rotary.FREQUENCIES}", f"{theirs}.rope_freqs", SAME),
    *layer(f"{attention}/out", f"{theirs}.proj", FROM_HEADS),
    (f"{_BLOCK}/LayerScale_1{suffix}/scale", f"blocks.{{0}}.ls1{suffix}.gamma", SAME),
    (f"{_BLOCK}/LayerScale_3{suffix}/scale", f"blocks.{{0}}.ls2{suffix}.gamma", SAME),
    *norm(f"{_BLOCK}/LayerNorm_2{suffix}", f"blocks.{{0}}.norm2{suffix}"),
    *layer(f"{mlp}/Dense_0", f"blocks.{{0}}.mlp{suffix}.fc1", DENSE),
    *layer(f"{mlp}/Dense_gate", f"blocks.{{0}}.mlp{suffix}.fc1_g", DENSE),
    *norm(f"{mlp}/LayerNorm_hidden", f"blocks.{{0}}.mlp{suffix}.norm"),
    *layer(f"{mlp}/Dense_1", f"blocks.{{0}}.mlp{suffix}.fc2", DENSE),
  )


def _relative(ours: str, theirs: str, table: str) -> tuple[Row, ...]:
  """The rows of biases for offsets, of a block or shared; `table` is theirs without an MLP."""
  return (
    (f"{ours}/relative_bias/{relative_bias.TABLE}", f"{table}.relative_position_bias_table", SAME),
    *layer(f"{ours}/relative_bias/Dense_0", f"{theirs}.mlp.fc1", DENSE),
    *layer(f"{ours}/relative_bias/Dense_1", f"{theirs}.mlp.fc2", DENSE),
  )


_VIT = Table(
  ("cls", "cls_token", SAME),
  ("distillation_tokens", "dist_token", SAME),
  ("register_tokens", "reg_token", SAME),
  (POSITIONS, "pos_embed", SAME),
  *layer("embedding", "patch_embed.proj", CONVOLUTION),
  *norm("embedding_norm", "patch_embed.norm"),
  *norm("Transformer/first_norm", "norm_pre"),
  *_block(""),
  *_block("_branch{1}"),
  *_relative(_BLOCK, "blocks.{0}.attn.rel_pos", "blocks.{0}.attn"),
  *_relative("Transformer", "shared_rel_pos", "rel_pos_bias"),
  *norm("Transformer/encoder_norm", "norm"),
  *norm("pooled_norm", "fc_norm"),
  ("neck/Conv_0/kernel", "neck.0.weight", CONVOLUTION),
  *norm("neck/LayerNorm_0", "neck.1"),
  ("neck/Conv_1/kernel", "neck.2.weight", CONVOLUTION),
  *norm("neck/LayerNorm_1", "neck.3"),
  ("MAPHead_0/probe", "attn_pool.latent", SAME),
  *to_heads(f"{_POOLED}/query", "attn_pool.q"),
  *to_heads(f"{_POOLED}/key", "attn_pool.kv"),
  *to_heads(f"{_POOLED}/value", "attn_pool.kv"),
  *layer(f"{_POOLED}/out", "attn_pool.proj", FROM_HEADS),
  *norm("MAPHead_0/LayerNorm_0", "attn_pool.norm"),
  *layer("MAPHead_0/MlpBlock_0/Dense_0", "attn_pool.mlp.fc1", DENSE),
  *layer("MAPHead_0/MlpBlock_0/Dense_1", "attn_pool.mlp.fc2", DENSE),
  *layer("head", "head", DENSE),
  *layer("head_dist", "head_dist", DENSE),
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
  *((f"resnet/root_block/conv{i}/{_CONV}", f"stem.conv{i}.weight", CONVOLUTION) for i in (1, 2, 3)),
  *(row for i in (1, 2) for row in norm(f"resnet/root_block/norm{i}", f"stem.norm{i}")),
  ("head/kernel", "head.fc.weight", AS_CONVOLUTION),
  ("head/bias", "head.fc.bias", SAME),
)
_TABLES = (_VIT, _WITH_ROOT, _HYBRID, _BIT)
_EARLIER = Table(*layer("pre_logits", "pre_logits.fc", DENSE))  # timm no longer has this layer
_READ = (*(table + _EARLIER for table in (_VIT, _WITH_ROOT, _HYBRID)), _BIT)

ACTIVATION = "gelu"  # of timm's models, unless they name another or have gated MLPs
CROP = 0.875  # the crop_pct of a configuration that names none
# How images are prepared that nothing describes.
_IMAGES_OF_VIT = dict(share=0.9, resampling="torchvision_bicubic")
_IMAGES_OF_RESNET = dict(share=CROP, resampling="torchvision_bilinear", usual_size=224)
POSITION_RESIZING = "bicubic_antialiased"
MASKED = "mask_token"  # in DINOv2's own files
_BEGINNINGS = ("patch_embed.", "blocks.0.", "stem.conv", "stages.0.blocks.0.")
# What timm's models have and ours do not, by the names of the parameters.
_LACKING = {
  r".*\.attn\.gate\..*": "a gate of its attention",
  r"embeds\..*": "NaFlex's embedding for images of any proportions",
  r"patch_embed\.backbone\.([0-9]+|layer[0-9]|conv1)\..*": "another stem of convolutions",
}
_UNTOLD = (
  "nothing tells which {}; put timm's config.json beside the file, with the name of a model that "
  "timm has (architecture)"
)
USUALLY = (
  "exact GELU (SiLU in gated MLPs), as many heads as models of this width have, norms before "
  "attention and MLP, with an epsilon of 1e-6 (1e-5 if the arrays are like CLIP's, AIMv2's or "
  "DINOv3's), rotary positions only if the arrays show them"
)
# The outputs of EVA-CLIP's projection, by the sizes in timm's names.
_EVA_CLIP = {"base": 512, "large": 768, "giant": 1024, "enormous": 1024}
_TWO_HEADS = ("head", "head_dist")
# Only used in training: of masked patches, of BEiT, of EUPE, which learns from several teachers.
_TRAINING = re.compile(r"mask_token|masked_embed|decoder.*|lm_head\..*|projectors\..*")
# MoCo v3 has an MLP with batch normalisation in place of a head, and 12 attention heads in ViT-S.
_OF_MOCO = "head.1.running_mean"
_MLP_HEAD = r"head\.[0-9]+\."
_COUNTS = rf"{_MLP_HEAD}num_batches_tracked"  # of batches, whole numbers
_REGISTERS = "register_tokens"  # in files of DINOv2 itself
_log = logging.getLogger(__name__)


def recognised(names) -> bool:
  """Whether the names of a file's arrays are timm's."""
  return any(name.startswith(_BEGINNINGS) for name in names)


def to_timm(params: dict, known: Model = UNKNOWN) -> dict[str, np.ndarray]:
  """Makes timm's state dictionary from our tree, blocks unstacked.

  Args:
    params: our tree.
    known: what is known of the architecture, which decides between timm's classes.

  Raises:
    ValueError: timm's models have no place for a parameter, which the message names.
  """
  flat = _of_two_heads(flatten(params))
  if known.positions in FIXED_POSITIONS:
    known = dataclasses.replace(known, positions="1d")  # written as a table, as timm's models have
  else:
    flat = _of_patches_alone(flat)
  try:
    theirs = nearest(_TABLES, flat, OURS).theirs(flat)
  except KeyError as error:
    raise ValueError(f"timm's models have no place for {error.args[0]}") from error
  if "Transformer" not in params:
    return theirs
  return timm_blocks.of_class(theirs, module_of(params, known))


def from_timm(
  flat: dict[str, np.ndarray],
  heads: Heads = NO_HEADS,
  size: Size = 0,
  *,
  ours: bool = False,
) -> dict:
  """Makes our tree from timm's state dictionary.

  Position embeddings without entries for the tokens before the patches get zeros for them.

  Args:
    flat: {timm's name: array}.
    heads: attention heads; 0: as many as the arrays tell, or timm's models of this width have.
    size: of the images that the position embeddings are for, pixels; 0: unknown.
    ours: whether this project wrote the file, so that nothing is ambiguous.

  Raises:
    ValueError: the model has something that ours do not have, which the message names; or it is
      unclear which tokens the position embeddings are for.
  """
  _check_parts(flat)
  told = meta.heads_of(flat) or _heads_of_moco(flat)
  flat = _of_one_head(_with_registers(timm_blocks.one_naming(meta.as_timm(_for_images(flat)))))
  table = nearest(_READ, flat, THEIRS)
  if lacking := table.lacking(flat, THEIRS):
    raise ValueError(
      f"{lacking[0]} is a part that neither the Vision Transformers, hybrids nor BiT of this "
      "project have"
    )
  of_blocks = heads.blocks or told or heads_of(flat)
  pooling = {name: x for name, x in flat.items() if name.startswith("attn_pool.")}
  blocks = {name: x for name, x in flat.items() if name not in pooling}
  translated = table.ours(blocks, of_blocks)
  translated |= table.ours(pooling, heads.pooling or of_blocks)
  tree = nest(_in_heads(translated))
  return position_count.for_all_tokens(tree, size, sure=ours)


def _check_parts(flat):
  """Refuses arrays of parts that ours do not have.

  Raises:
    ValueError: there is one, which the message names.
  """
  for name in flat:
    for pattern, what in _LACKING.items():
      if re.fullmatch(pattern, name):
        raise ValueError(f"it has {what} ({name}), which no model of this project has")


def _in_heads(flat):
  """Gives biases of keys and values the shape of their heads."""
  kernels = {name.removesuffix("/kernel"): x for name, x in flat.items() if name.endswith("kernel")}
  return {
    name: x.reshape(kernels[name.removesuffix("/bias")].shape[1:])
    if re.fullmatch(r".*/(key|value)/bias", name)
    else x
    for name, x in flat.items()
  }


def _of_one_head(flat):
  """One head of class token and distillation token for the mean of a head of each."""
  if "head_dist.weight" not in flat or "head.weight" not in flat:
    return flat
  pairs = {kind: [flat[f"{name}.{kind}"] for name in _TWO_HEADS] for kind in ("weight", "bias")}
  rest = {name: x for name, x in flat.items() if not name.startswith("head_dist.")}
  weight = np.concatenate(pairs["weight"], axis=1) / 2
  return rest | {"head.weight": weight, "head.bias": np.mean(pairs["bias"], axis=0)}


def _of_two_heads(flat):
  """The inverse of `_of_one_head`, for our names; both heads get the same bias."""
  if "distillation_tokens" not in flat or "head/kernel" not in flat:
    return flat
  kernels = np.split(2 * np.asarray(flat["head/kernel"]), 2)
  heads = {f"{name}/kernel": x for name, x in zip(_TWO_HEADS, kernels, strict=True)}
  return flat | heads | {f"{name}/bias": flat["head/bias"] for name in _TWO_HEADS}


def position_resizing(names) -> str:
  """How the position embeddings of a file with these names are resized.

  As in the code of their authors for masked autoencoders with their decoder
  (`interpolate_pos_embed`: bicubic without antialiasing), and for DINOv2's own files without
  registers.
  """
  if any(name.startswith("decoder") for name in names):
    return "bicubic"
  if MASKED in names and "pos_embed" in names and _REGISTERS not in names:
    return "bicubic_offset"
  return POSITION_RESIZING


def stem_norms(params: dict) -> str:
  """The `stem_norms` of timm's model with these parameters; the usual ones without a ResNet."""
  return "timm" if "conv_root" in params else USUAL["stem_norms"]


def activation_of(params: dict) -> str:
  """The usual activation of timm's models with these parameters: in all gated MLPs it is SiLU."""
  if getattr(module_of(params), "mlp", "plain") == "gated":
    return "silu"
  return ACTIVATION


def usual_fields(params: dict, names: Iterable[str]) -> dict:
  """Fields of `config.Model` that arrays do not show, as the models of timm that have these do.

  Args:
    params: our tree.
    names: of the arrays that it was read from.
  """
  module = module_of(params)
  first = getattr(module, "first_norm", "none")
  of_clip = first == "tokens" and module.norm == "layer"
  epsilon = {"norm_epsilon": 1e-5} if of_clip or first == "patches" else {}  # patches: AIMv2
  return epsilon | meta.known(names)


def projects(params: dict, architecture: str = "", labels: Collection[str] = ()) -> bool:
  """Whether the head is CLIP's projection to the space of texts.

  That of EVA-CLIP has a trained bias; to others timm adds zeros as bias.

  Args:
    params: our tree.
    architecture: timm's name, which may tell that the model is CLIP's; as may a norm of all tokens.
    labels: the names of the classes, if its config.json gives them.
  """
  if "head" not in params:
    return False
  bias = params["head"]["bias"]
  of_eva = re.fullmatch(r"eva(02)?_(?P<size>[a-z]+)_patch\d+_clip_.*", architecture)
  if of_eva and not labels and bias.size == _EVA_CLIP.get(of_eva["size"]):
    return True
  of_clip = re.search("_clip_|_pe_core_", architecture)
  of_clip = of_clip or "first_norm" in params.get("Transformer", {})
  return bool(of_clip and not np.any(bias))


def heads_of(flat: dict[str, np.ndarray]) -> int:
  """The number of heads in timm's models with the width of these arrays; 0 if there are no blocks.

  Raises:
    ValueError: timm's models of this width differ, or there are none.
  """
  if "blocks.0.norm1.weight" not in flat:
    return 0
  width = flat["blocks.0.norm1.weight"].size
  if "blocks.0.attn.proj.bias" not in flat:
    return width // 128  # of AIMv2
  return heads_of_width(width)


def heads_of_width(width: int) -> int:
  """The number of heads in models of this width.

  Raises:
    ValueError: models of this width differ.
  """
  heads = heads_in_timm(width)
  if not heads:
    raise ValueError(
      f"nothing tells how many attention heads a model of width {width} has; put a config.json "
      'beside the file that says it, {"architecture": NAME, "model_args": {"num_heads": HEADS}}'
    )
  return heads


def check_told(flat):
  """Refuses arrays of models whose names alone tell how they compute.

  Raises:
    ValueError: they are of timm's Eva, which has rotary positions of several kinds or none, or of
      its VisionTransformerSAM; or they have a part that no name can tell, because ours lack it.
  """
  _check_parts(flat)
  if "blocks.0.attn.proj.weight" not in flat or timm_blocks.FREQUENCIES in flat:
    return
  if meta.known(flat):
    return
  if any(name.endswith(".rel_pos_h") for name in flat):
    raise ValueError(_UNTOLD.format("windows of attention its model has"))
  relative = any("relative_position_bias" in name or "rel_pos.mlp" in name for name in flat)
  of_eva = any(f"blocks.0.attn.{name}" in flat for name in ("q_bias", "q_proj.weight"))
  of_perception = "norm.weight" not in flat or "attn_pool.q.weight" in flat
  of_perception &= "norm_pre.weight" in flat
  if not relative and (of_eva or of_perception or "pos_embed" not in flat):
    raise ValueError(_UNTOLD.format("rotary positions its model has, if any"))


def _for_images(flat):
  """Leaves out arrays that only the training of a model needs."""
  others = set(filter(_TRAINING.fullmatch, flat))
  if _OF_MOCO in flat:
    others.update(name for name in flat if re.match(_MLP_HEAD, name))
  if others:
    _log.warning("Left out, because only its training needs it: %s.", listed(sorted(others)))
  return {name: array for name, array in flat.items() if name not in others}


def _heads_of_moco(flat) -> int:
  """The attention heads of MoCo v3's ViT-S, which are twice those of others; 0: it is another."""
  width = np.shape(flat.get("patch_embed.proj.weight"))[:1]
  return 12 if _OF_MOCO in flat and width == (384,) else 0


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
  """Leaves out zeros for all tokens before the patches, as timm's models with `no_embed_class`."""
  if POSITIONS not in flat:
    return flat
  before = _before(flat)
  table = np.asarray(flat[POSITIONS])
  if table[:, :before].any():
    return flat
  return flat | {POSITIONS: table[:, before:]}


def _before(flat) -> int:
  """The number of tokens before the patches."""
  tokens = ("cls", "distillation_tokens", "register_tokens")
  return sum(flat[name].shape[1] for name in tokens if name in flat)


def _load(flat: dict[str, np.ndarray], heads: Heads, ours: bool, size: Size) -> dict:
  if not ours:
    check_told(flat)
    if "cls_token" in flat and "attn_pool.latent" in flat:
      raise ValueError(_UNTOLD.format("tokens its attention pooling sees"))
  return from_timm(flat, heads, size, ours=ours)


def _card(path: pathlib.Path, params: dict, names: Iterable[str]) -> Card:
  """What timm's models have in common; warns that nothing else is known about this one."""
  usual = card.guessed(
    params,
    **(_IMAGES_OF_VIT if "Transformer" in params else _IMAGES_OF_RESNET),
    model=Model(
      activation=activation_of(params),
      stem_norms=stem_norms(params),
      **usual_fields(params, list(names)),
    ),
    position_resizing=position_resizing(names),
    projection=projects(params),
  )
  _log.warning(
    "%s has timm's names, and nothing says how its model computes. Taken as usual in timm: %s, the "
    "mean of the patches where there is no class token, square images as (pixel - 127.5) / 127.5; "
    "%s. If they are not (DeiT, DINO and MAE have another mean), put timm's config.json beside it.",
    path,
    USUALLY,
    card.preparation_in_words(usual),
  )
  return usual


def _notes(params: dict, exported: Card) -> list[str]:
  """What the user of a file in timm must know, as `ArrayNames.notes`."""
  to_timm(params, exported.model)
  notes = [
    "In timm its pixels must be from -1 to 1: where timm's model has another mean, give timm "
    "mean=std=0.5."
  ]
  flat = flatten(params)
  activation = exported.model.activation
  if "Transformer" in params and activation != activation_of(params):
    notes.append(
      f"Its activation is {activation}: if that of timm's model is another one, give timm "
      f"act_layer={activation}."
    )
  of_eva = timm_blocks.of_eva(exported.model)
  notes += heads_for_timm(exported.model)
  notes += pooling_in_timm(
    exported.model,
    averages=of_eva or exported.model.positions.startswith("relative"),
    norm="use_fc_norm" if of_eva else "fc_norm",
  )
  if POSITIONS not in flat:
    return notes
  if _of_patches_alone(flat) is not flat:
    notes.append(
      "It has position embeddings for the patches alone: if timm's model has them for the class "
      "token too, give timm no_embed_class=True."
    )
  elif exported.model.registers or exported.model.layer_scale:
    notes.append(
      "It has position embeddings for the tokens before the patches too: if timm's model has none "
      "for them, as DeiT III and models with registers, give timm no_embed_class=False."
    )
  return notes


NAMES = ArrayNames(
  name="timm",
  recognised=recognised,
  load=_load,
  save=to_timm,
  card=_card,
  notes=_notes,
  tables=rf"{timm_blocks.TABLES}|{_COUNTS}",
)
