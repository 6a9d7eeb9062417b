"""Finds the model of a parameter tree from the names and shapes of its parameters."""

import re

from vit_jax.models.resnet import ResNet
from vit_jax.models.vit import ViT

# What the code below raises for a tree of another layout.
_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)


def module_of(params: dict, **options) -> ViT | ResNet:
  """The module, unrolled, in float32.

  Args:
    params: parameter tree of this project, with unstacked blocks; the head may be missing.
    **options: fields that the parameters do not determine: dropout, dtype, attention, ...

  Raises:
    ValueError: the names or shapes belong to no model of this project.
  """
  try:
    fields = _resnet(params) if "resnet" in params else _vit(params)
  except _ERRORS as error:
    raise _not_known(params, error) from error
  kind = ResNet if "resnet" in params else ViT
  return kind(**fields, **options)


def patch_grid(params: dict, class_token: bool) -> tuple[int, int] | None:
  """Rows and columns of patches of the position embeddings; None if there are no embeddings.

  A table with one vector per token does not determine its rows: the grid is assumed to be square.

  Raises:
    ValueError: the number of patches is not a square, or the embeddings have another layout.
  """
  tables = position_tables(params)
  if not tables:
    return None
  table = tables[0]
  try:
    if "pos_embedding_row" in table:
      return len(table["pos_embedding_row"]), len(table["pos_embedding_column"])
    patches = table["pos_embedding"].shape[1] - class_token
  except _ERRORS as error:
    raise _not_known(params, error) from error
  side = round(max(patches, 0) ** 0.5)
  if side * side != patches:
    raise ValueError(
      f"There are position embeddings for {patches} patches, which is no square; "
      "give the grid of patches that they are for."
    )
  return side, side


def _not_known(params: dict, error: Exception) -> ValueError:
  """The error for parameters of another layout; `error` is what reading them as ours raised."""
  wrong = "an array is where several belong, or has another number of axes"
  if isinstance(error, KeyError):
    wrong = f"looked for: {error}"
  elif isinstance(error, _Unlike):
    wrong = str(error)
  return ValueError(
    f"These parameters do not belong to a known model ({wrong}); they hold "
    f"{', '.join(list(params)[:5])}, ..."
  )


def position_tables(params: dict) -> list[dict]:
  """All nodes of the tree with 1-D or 2-D position embeddings."""
  found = []
  for name, node in params.items():
    if name in ("posembed_input", "posembed_shared"):
      found.append(node)
    elif isinstance(node, dict):
      found += position_tables(node)
  return found


def _vit(params) -> dict:
  encoder = params["Transformer"]
  depth = _count(encoder, r"encoderblock_(\d+)")
  first = encoder["encoderblock_0"]
  axial = "row" in first
  block = first["row"] if axial else first
  attention = block["MultiHeadDotProductAttention_1"]
  patch, _, _, width = params["embedding"]["kernel"].shape
  _, heads, _ = attention["query"]["kernel"].shape
  if width % heads:
    raise _Unlike(f"{heads} heads do not divide the width {width}")
  fields = dict(
    patch=patch,
    depth=depth,
    width=width,
    mlp_dim=block["MlpBlock_3"]["Dense_0"]["kernel"].shape[-1],
    heads=heads,
    num_classes=_classes(params),
    axial=axial,
    representation_layer="pre_logits" in params,
  )
  if "conv_root" in params:
    blocks = range(1, _count(params, r"block(\d+)", first=1) + 1)
    fields["stages"] = tuple(_count(params[f"block{i}"], r"unit(\d+)", first=1) for i in blocks)
    fields["stem_width"] = params["conv_root"]["kernel"].shape[-1]
  fields["pool"] = "class_token" if "cls" in params else "map" if "MAPHead_0" in params else "gap"
  return fields | _positions(encoder, first, attention)


def _positions(encoder, block, attention) -> dict:
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
  return dict(positions="none")


def _resnet(params) -> dict:
  backbone = params["resnet"]
  blocks = range(1, _count(backbone, r"block(\d+)", first=1) + 1)
  middle = backbone["block1"]["unit01"]["b"]
  fields = dict(
    stages=tuple(_count(backbone[f"block{i}"], r"unit(\d+)", first=1) for i in blocks),
    width=backbone["root_block"]["standardized_conv2d"]["kernel"].shape[-1],
    num_classes=_classes(params),
  )
  if "row_attention" in middle:
    fields["heads"] = middle["row_attention"]["query"]["kernel"].shape[1]
  return fields


def _classes(params) -> int:
  """Outputs of the head; 1 without a head."""
  return params["head"]["kernel"].shape[-1] if "head" in params else 1


class _Unlike(ValueError):
  """The parameters are unlike those of known models; the message says why."""


def _count(node, pattern, *, first=0) -> int:
  """Number of children whose names match the pattern; their numbers must have no gaps."""
  numbers = sorted(int(match[1]) for name in node if (match := re.fullmatch(pattern, name)))
  if numbers != list(range(first, first + len(numbers))):
    raise _Unlike(f"{pattern} numbered {numbers}, with gaps")
  return len(numbers)
