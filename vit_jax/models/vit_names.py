"""The family of ViTs: its fields from a name such as "R50x1+ViT-B/16", or from parameters."""

import re

from vit_jax.models.convolution import STAGES
from vit_jax.models.family import Family
from vit_jax.models.recognition import UnlikeError, child_count, outputs
from vit_jax.models.vit import ViT

# Shapes of the Transformer encoder (Table 1 of the paper; b, of Figure 4, is B with sizes halved;
# So400m: Alabdulmohsin et al., "Getting ViT in shape", 2023).
SIZES = {
  "Ti": dict(depth=12, width=192, mlp_dim=768, heads=3),
  "S": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "b": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "B": dict(depth=12, width=768, mlp_dim=3072, heads=12),
  "L": dict(depth=24, width=1024, mlp_dim=4096, heads=16),
  "So400m": dict(depth=27, width=1152, mlp_dim=4304, heads=16),
  "H": dict(depth=32, width=1280, mlp_dim=5120, heads=16),
}

_VIT = re.compile(r"(?P<axial>Axial-)?ViT-(?P<size>\w+)/(?P<patch>[1-9]\d{0,3})", re.ASCII)
_HYBRID = re.compile(
  r"R(?:(?P<depth>\d+)(?:x(?P<factor>[1-9]\d?))?)?\+ViT-(?P<size>\w+)/(?P<stride>\d\d?)"
  r"(?:p(?P<patch>[1-9]\d?))?",
  re.ASCII,
)


def fields_of_name(name: str) -> dict | None:
  """As `Family.fields`."""
  match = _VIT.fullmatch(name) or _HYBRID.fullmatch(name)
  if not match or match["size"] not in SIZES:
    return None
  size = SIZES[match["size"]]
  if match.re is _VIT:
    fields = size | dict(patch=int(match["patch"]))
    if match["axial"]:
      # Attention along rows and columns has no place for a class token.
      fields |= dict(axial=True, pool="gap")
    return fields
  stem = _stem(match["depth"], int(match["stride"]), match["patch"])
  if stem is None:
    return None
  return size | stem | dict(stem_width=64 * int(match["factor"] or 1))


def _stem(depth: str | None, stride: int, patch: str | None) -> dict | None:
  """Stages and patch size of a hybrid whose map has this stride; None if unknown.

  Patches are 1 x 1 on the map unless the name says `patch`.

  With /32 the tokens are the output of stage 4. With /16 the units of stage 4 are added to stage 3
  (Section 3.1). "R+" has only the root, with patches of 8 x 8. Its published name says 16, although
  its tokens are 32 pixels apart.
  """
  if depth is None:
    if stride != 16 or patch:
      return None
    return dict(stages=(), patch=8)
  if depth not in STAGES or stride not in (16, 32):
    return None
  one, two, three, four = STAGES[depth]
  stages = (one, two, three, four)
  if stride == 16:
    stages = (one, two, three + four)
  return dict(stages=stages, patch=int(patch or 1))


def recognise(params: dict) -> dict | None:
  """As `Family.recognise`."""
  if "Transformer" not in params:
    return None
  encoder = params["Transformer"]
  first = encoder["encoderblock_0"]
  axial = "row" in first
  block = first["row"] if axial else first
  attention = block["MultiHeadDotProductAttention_1"]
  patch, _, _, width = params["embedding"]["kernel"].shape
  _, heads, _ = attention["query"]["kernel"].shape
  if width % heads:
    raise UnlikeError(f"{heads} heads do not divide the width {width}")
  fields = dict(
    patch=patch,
    depth=child_count(encoder, "encoderblock_"),
    width=width,
    mlp_dim=block["MlpBlock_3"]["Dense_0"]["kernel"].shape[-1],
    heads=heads,
    num_classes=outputs(params),
    axial=axial,
    stem_width=0,
    stages=(),
    representation_layer="pre_logits" in params,
    pool=_pool(params),
    registers=_registers(params),
    qk_norm="LayerNorm_query" in attention,
    layer_scale="LayerScale_1" in block,
  )
  if "conv_root" in params:
    stages = range(1, child_count(params, "block", first=1) + 1)
    fields["stages"] = tuple(child_count(params[f"block{i}"], "unit", first=1) for i in stages)
    fields["stem_width"] = params["conv_root"]["kernel"].shape[-1]
  return fields | _positions(encoder, first, attention)


def _pool(params: dict) -> str:
  if "cls" in params:
    return "class_token"
  if "MAPHead_0" in params:
    return "map"
  return "gap"


def _registers(params: dict) -> int:
  if "register_tokens" not in params:
    return 0
  return params["register_tokens"].shape[1]


def _positions(encoder: dict, block: dict, attention: dict) -> dict:
  """The fields for position embeddings; {} if there are no parameters for them."""
  if "pos_embedding_relative" in attention:
    return dict(positions="relative")
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


def alike(module: ViT) -> list[str]:
  """As `Family.alike`: all known sizes, and for hybrids all known depths of ResNets."""
  if not module.stem_width:
    axial = "Axial-" if module.axial else ""
    return [f"{axial}ViT-{size}/{module.patch}" for size in SIZES]
  if not module.stages:
    return [f"R+ViT-{size}/16" for size in SIZES]
  factors = [f"x{max(module.stem_width // 64, 1)}", ""]  # 1 if the name has none
  stems = [f"R{depth}{factor}" for depth in STAGES for factor in factors]
  return [f"{stem}+ViT-{size}/{n}" for stem in stems for size in SIZES for n in (16, 32)]


FAMILY = Family(
  module=ViT,
  names=(
    *("ViT-Ti/16", "ViT-S/16", "ViT-S/32", "ViT-b/16", "ViT-b/32", "ViT-B/8", "ViT-B/16"),
    *("ViT-B/32", "ViT-L/16", "ViT-L/32", "ViT-So400m/14", "ViT-H/14"),
    *("R+ViT-Ti/16", "R26+ViT-S/32", "R26+ViT-B/32"),
    *("R50x1+ViT-B/32", "R50x1+ViT-B/16", "R50x1+ViT-L/32", "R50x1+ViT-L/16"),
    *("Axial-ViT-B/32", "Axial-ViT-B/16"),
  ),
  fields=fields_of_name,
  recognise=recognise,
  alike=alike,
)
