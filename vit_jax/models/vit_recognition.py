"""Recognises the fields of a ViT, a hybrid or an axial ViT in its parameters."""

from vit_jax.config import as_size
from vit_jax.models.attention import AXES
from vit_jax.models.recognition import OneOf, UnlikeError, child_count, outputs
from vit_jax.models.relative_bias import TABLE
from vit_jax.models.rotary import FREQUENCIES


def recognise(params: dict) -> dict | None:
  """As `Family.recognise`."""
  if "Transformer" not in params:
    return None
  encoder = params["Transformer"]
  first = encoder["encoderblock_0"]
  axial = "row" in first
  block = first["row"] if axial else first
  attention = block["MultiHeadDotProductAttention_1"]
  mlp = block["MlpBlock_3"]
  *patch, _, width = params["embedding"]["kernel"].shape
  _, heads, _ = attention["query"]["kernel"].shape
  if width % heads:
    raise UnlikeError(f"{heads} heads do not divide the width {width}")
  depth = child_count(encoder, "encoderblock_")
  root = params.get("conv_root", params["embedding"])["kernel"]
  fields = dict(
    patch=as_size(patch),
    channels=root.shape[2],
    depth=depth,
    width=width,
    mlp_dim=mlp["Dense_0"]["kernel"].shape[-1],
    heads=heads,
    num_classes=outputs(params),
    axial=axial,
    stem_width=0,
    stages=(),
    representation_layer="pre_logits" in params,
    registers=_registers(params),
    patch_bias="bias" in params["embedding"],
    layer_scale="LayerScale_1" in block,
    layer_scale_place=_layer_scale_place(block),
  )
  if "conv_root" in params:
    stages = range(1, child_count(params, "block", first=1) + 1)
    fields["stages"] = tuple(child_count(params[f"block{i}"], "unit", first=1) for i in stages)
    fields["stem_width"] = params["conv_root"]["kernel"].shape[-1]
  fields |= _of_attention(attention) | _of_block(block, mlp, axial=axial)
  fields |= _of_pooling(params, fields) | _of_norms(params) | _of_neck(params)
  return fields | _key_heads(encoder, depth, heads) | _positions(encoder, first, attention)


def _layer_scale_place(block: dict) -> str | OneOf:
  if "LayerScale_1" not in block:
    return OneOf("both", "attention")
  sequential = "LayerNorm_2" in block
  return "attention" if sequential and "LayerScale_3" not in block else "both"


def _of_attention(attention: dict) -> dict:
  """The fields that an attention shows."""
  biases = "all"
  if "bias" not in attention["key"]:
    biases = "no_key" if "bias" in attention["query"] else "none"
  fields = dict(
    qk_norm="LayerNorm_query" in attention,
    qkv_bias=biases,
    dense_bias="bias" in attention["out"],
    attention_norm="LayerNorm_heads" in attention,
    differential="lambda_key_1" in attention,
    relative_axes=AXES[0] in attention,
  )
  if FREQUENCIES in attention:
    fields["rotary"] = "mixed"
  return fields


def _of_block(block: dict, mlp: dict, *, axial: bool) -> dict:
  """The fields that the first block shows."""
  branches = 1
  if not axial:
    branches += child_count(block, "LayerNorm_0_branch", first=1)
  return dict(
    norm="layer" if "bias" in block["LayerNorm_0"] else "rms",
    layout="sequential" if "LayerNorm_2" in block else "parallel",
    parallel_branches=branches,
    mlp="gated" if "Dense_gate" in mlp else "plain",
    mlp_norm="LayerNorm_hidden" in mlp,
  )


def _of_norms(params: dict) -> dict:
  """The fields for the norms around the blocks."""
  first = "none"
  if "first_norm" in params["Transformer"]:
    first = "tokens"
  if "embedding_norm" in params:
    first = "patches"
  final = "none"
  if "encoder_norm" in params["Transformer"]:
    final = "tokens"
  if "pooled_norm" in params:
    final = "pooled"
  return dict(first_norm=first, final_norm=final)


def _of_neck(params: dict) -> dict:
  """The fields for the layers behind the blocks."""
  neck = params.get("neck")
  if neck is None:
    return dict(neck="none", neck_dim=0)
  if "Conv_0" not in neck:
    return dict(neck="norm", neck_dim=0)
  return dict(neck="convolutions", neck_dim=neck["Conv_0"]["kernel"].shape[-1])


def _of_pooling(params: dict, fields: dict) -> dict:
  """The fields for pooling; the parameters of some kinds are the same."""
  if "MAPHead_0" not in params:
    return dict(pool=_pool(params))
  pooling = params["MAPHead_0"]
  found = dict(
    pool_heads=pooling["MultiHeadDotProductAttention_0"]["query"]["kernel"].shape[1],
    pool_mlp_dim=pooling["MlpBlock_0"]["Dense_0"]["kernel"].shape[-1],
  )
  usual = dict(pool_heads=fields["heads"], pool_mlp_dim=fields["mlp_dim"])
  found = {key: OneOf(0, x) if x == usual[key] else x for key, x in found.items()}
  if "cls" in params:
    return found | dict(pool="map_with_token")
  return found | dict(pool=OneOf("map", "map_of_all"))


def _pool(params: dict) -> str | OneOf:
  if "distillation_tokens" in params:
    return "distilled"
  if "cls" not in params:
    return "gap"
  kinds = ("class_token", "gap_beside_token")
  return OneOf(*(reversed(kinds) if "pooled_norm" in params else kinds))


def _key_heads(encoder: dict, depth: int, heads: int) -> dict:
  """The fields for heads of keys and values."""
  blocks = [encoder[f"encoderblock_{i}"] for i in range(depth)]
  if "row" in blocks[0]:
    return {}
  keys = [block["MultiHeadDotProductAttention_1"]["key"]["kernel"].shape[1] for block in blocks]
  fewer = min(keys)
  if fewer == heads:
    return dict(kv_heads=0, kv_heads_from=0)
  return dict(kv_heads=fewer, kv_heads_from=keys.index(fewer))


def _registers(params: dict) -> int:
  if "register_tokens" not in params:
    return 0
  return params["register_tokens"].shape[1]


def _positions(encoder: dict, block: dict, attention: dict) -> dict:
  """The fields for position embeddings; {} if there are no parameters for them."""
  if "pos_embedding_relative" in attention:
    return dict(positions="relative")
  for node, place in ((block, "stem"), (encoder, "every_layer_shared")):
    if bias := node.get("relative_bias"):
      if TABLE in bias:
        return dict(positions="relative_table", position_place=place)
      hidden = bias["Dense_0"]["kernel"].shape[-1]
      return dict(positions="relative_mlp", position_place=place, relative_dim=hidden)
  places = {
    "stem": encoder.get("posembed_input"),
    "every_layer": block.get("posembed_input"),
    "every_layer_shared": encoder.get("posembed_shared"),
  }
  for place, table in places.items():
    if table is not None:
      kind = "2d" if "pos_embedding_row" in table else "1d"
      return dict(positions=kind, position_place=place)
  return {}
