"""The names that timm's classes of blocks have for the same arrays, and one naming of them all.

timm's VisionTransformer, Eva, Beit, VisionTransformerRelPos and their blocks join and name the
arrays of a block differently. The one naming used here is that of VisionTransformer's Block, with
separate projections (`attn.q_proj`, `attn.k_proj`, `attn.v_proj`) and a separate gate of the MLP
(`mlp.fc1_g`); in a second branch of a block, `_branch1` follows the name of each part.
"""

import math
import re

import numpy as np

from vit_jax.config import Model
from vit_jax.models import Network

Arrays = dict[str, np.ndarray]

# (name of another class or file, the one name). DeiT III's own files, and DINOv2's with its blocks
# in chunks, come first.
_READ = tuple(
  (re.compile(pattern), name)
  for pattern, name in (
    (r"blocks\.[0-9]+\.([0-9]+\..*)", r"blocks.\1"),
    (r"(blocks\.[0-9]+)\.gamma_([12])", r"\1.ls\2.gamma"),
    (r"(blocks\.[0-9]+)\.attn\.([qv])_bias", r"\1.attn.\2_proj.bias"),
    (r"(blocks\.[0-9]+)\.attns\.0\.(norm|ls)\.(.*)", r"\1.\g<2>1.\3"),
    (r"(blocks\.[0-9]+)\.ffns\.0\.(norm|ls)\.(.*)", r"\1.\g<2>2.\3"),
    (r"(blocks\.[0-9]+)\.(?:attns|ffns)\.0\.(attn|mlp)\.(.*)", r"\1.\2.\3"),
    (r"(blocks\.[0-9]+)\.attns\.([0-9]+)\.(norm|ls)\.(.*)", r"\1.\g<3>1_branch\2.\4"),
    (r"(blocks\.[0-9]+)\.ffns\.([0-9]+)\.(norm|ls)\.(.*)", r"\1.\g<3>2_branch\2.\4"),
    (r"(blocks\.[0-9]+)\.(?:attns|ffns)\.([0-9]+)\.(attn|mlp)\.(.*)", r"\1.\3_branch\2.\4"),
    (r"(blocks\.[0-9]+)\.mlp\.fc1_x\.(.*)", r"\1.mlp.fc1.\2"),
    (r"(blocks\.[0-9]+)\.in_norm\.(.*)", r"\1.norm1.\2"),
    (r"(blocks\.[0-9]+)\.mlp_bias", r"\1.mlp.fc1.bias"),
    (r"(blocks\.[0-9]+)\.(q_norm|k_norm|sub_norm)\.(.*)", r"\1.attn.\2.\3"),
    (r"(blocks\.[0-9]+)\.(lambda_[qk][12])", r"\1.attn.\2"),
    (r"(blocks\.[0-9]+)\.attn_out_proj\.(.*)", r"\1.attn.proj.\2"),
    (r"(blocks\.[0-9]+)\.mlp_out_proj\.(.*)", r"\1.mlp.fc2.\2"),
    (r"(blocks\.[0-9]+)\.ls\.gamma", r"\1.ls1.gamma"),
  )
)
# The names in the blocks of the two other layouts.
_PARALLEL = (
  (r"norm1\.(.*)", r"in_norm.\1"),
  (r"attn\.((?:[qk]|sub)_norm\..*|lambda_.*)", r"\1"),
  (r"ls1\.gamma", "ls.gamma"),
)
_BRANCHES = (
  (r"(norm|ls)1(?:_branch([0-9]+))?\.(.*)", "attns.{}.\\1.\\3"),
  (r"(norm|ls)2(?:_branch([0-9]+))?\.(.*)", "ffns.{}.\\1.\\3"),
  (r"(attn)(?:_branch([0-9]+))?\.(.*)", "attns.{}.\\1.\\3"),
  (r"(mlp)(?:_branch([0-9]+))?\.(.*)", "ffns.{}.\\1.\\3"),
)
_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_IN_BLOCK = re.compile(r"(blocks\.[0-9]+)\.(.*)")
FREQUENCIES = "rope.freqs"  # of all blocks, (2, blocks, heads, Dh / 2)
OWN_FREQUENCIES = "attn.rope_freqs"  # of one block, (2, heads, Dh / 2)
# Arrays that older versions saved, and this project computes; of whole numbers, and all.
TABLES = r".*\.relative_position_index"
_COMPUTED = re.compile(
  rf"{TABLES}|.*rel_coords_log|(.*\.)?rope\.(?!freqs).*|.*\.(k_bias|bias_mask)"
)


def one_naming(flat: Arrays) -> Arrays:
  """The arrays of any of timm's classes under the one naming.

  Raises:
    ValueError: two names mean the same array, or an array cannot be divided.
  """
  renamed = {}
  of_sam = "neck.weight" in flat or "neck.0.weight" in flat
  for name, array in flat.items():
    if _COMPUTED.fullmatch(name):
      continue
    if of_sam:
      name, array = _one_name(name, array)
    for pattern, usual in _READ:
      name = pattern.sub(usual, name) if pattern.fullmatch(name) else name
    if name in renamed:
      raise ValueError(f"two arrays mean {name}")
    renamed[name] = array
  divided = {}
  for name, array in renamed.items():
    for piece, value in _pieces(name, array, renamed):
      if piece in divided:
        raise ValueError(f"two arrays mean {piece}")
      divided[piece] = value
  return divided


def _one_name(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
  """An array of timm's VisionTransformerSAM, outside its blocks, as of its VisionTransformer."""
  if name.startswith("head.fc."):
    return name.replace(".fc", ""), array
  if name in ("neck.weight", "neck.bias"):
    return name.replace("neck", "neck.1"), array
  if name == "pos_embed" and array.ndim == 4:
    return name, array.reshape(1, -1, array.shape[-1])
  return name, array


def _pieces(name: str, array: np.ndarray, flat: Arrays) -> list[tuple[str, np.ndarray]]:
  """The arrays of the one naming that an array holds."""
  if name == FREQUENCIES:
    return [(f"blocks.{i}.{OWN_FREQUENCIES}", array[:, i]) for i in range(array.shape[1])]
  match = _IN_BLOCK.fullmatch(name)
  if not match:
    return [(name, array)]
  block, rest = match.groups()
  if found := re.fullmatch(r"(attn\w*)\.qkv\.(weight|bias)", rest):
    attention, kind = found.groups()
    names = [f"{block}.{attention}.{projection}.{kind}" for projection in _PROJECTIONS]
    return list(zip(names, _equal(name, array, 3), strict=True))
  if found := re.fullmatch(r"(mlp\w*)\.fc1\.(weight|bias)", rest):
    mlp, kind = found.groups()
    second = np.shape(flat.get(f"{block}.{mlp}.fc2.weight"))
    if len(second) == 2 and len(array) == 2 * second[1]:
      names = [f"{block}.{mlp}.{part}.{kind}" for part in ("fc1_g", "fc1")]
      return list(zip(names, _equal(name, array, 2), strict=True))
  if rest.startswith("in_proj."):
    return _of_parallel(block, rest, array, flat)
  if rest == "out_proj.weight":
    width = len(array)
    names = (f"{block}.attn.proj.weight", f"{block}.mlp.fc2.weight")
    return list(zip(names, np.split(array, [width], axis=1), strict=True))
  if rest == "out_proj.bias":  # of the sum of both
    return [(f"{block}.attn.proj.bias", array), (f"{block}.mlp.fc2.bias", np.zeros_like(array))]
  return [(name, array)]


def _of_parallel(block: str, rest: str, array: np.ndarray, flat: Arrays):
  """Divides the first layer of a parallel block: the MLP's first, then q, k and v."""
  kind = rest.removeprefix("in_proj.")
  width = len(flat[f"{block}.norm1.weight"])
  hidden = len(array) - 3 * width
  names = [f"{block}.mlp.fc1.{kind}"]
  names += [f"{block}.attn.{projection}.{kind}" for projection in _PROJECTIONS]
  places = [hidden, hidden + width, hidden + 2 * width]
  return list(zip(names, np.split(array, places), strict=True))


def _equal(name: str, array: np.ndarray, count: int) -> list[np.ndarray]:
  if not array.ndim or len(array) % count:
    raise ValueError(f"{name} is {array.shape} and must hold {count} equal parts")
  return np.split(array, count)


def of_class(flat: Arrays, model: Network) -> Arrays:
  """The arrays under the names of timm's class for this model; the inverse of `one_naming`."""
  blocks = {}
  others = {}
  for name, array in flat.items():
    if match := _IN_BLOCK.fullmatch(name):
      blocks.setdefault(match[1], {})[match[2]] = array
    else:
      others[name] = array
  if any(OWN_FREQUENCIES in block for block in blocks.values()):
    own = [blocks[f"blocks.{i}"].pop(OWN_FREQUENCIES) for i in range(len(blocks))]
    others[FREQUENCIES] = np.stack(own, axis=1)
  if model.relative_axes:
    others = _of_sam(others, model)
  for block, arrays in blocks.items():
    others |= {f"{block}.{name}": array for name, array in _of_class(arrays, model).items()}
  return others


def _of_sam(others: Arrays, model: Network) -> Arrays:
  """The inverse of `_one_name`."""
  pairs = [(r"head\.(.*)", r"head.fc.\1")]
  if model.neck == "norm":
    pairs.append((r"neck\.1\.(.*)", r"neck.\1"))
  others = _named_by(others, pairs)
  if "pos_embed" in others:
    table = others["pos_embed"]
    side = math.isqrt(table.shape[1])
    if side**2 != table.shape[1]:
      raise ValueError("timm's models with windows have a place for square images only")
    others["pos_embed"] = table.reshape(1, side, side, -1)
  return others


def _of_class(block: Arrays, model: Network) -> Arrays:
  """One block under the names of its class."""
  eva = of_eva(model)
  separate = model.norm == "rms" if model.rotary == "dinov3" else eva and model.mlp_norm
  if model.mlp == "gated":
    if _separate_gate(model):
      block = _named_by(block, [(r"mlp\.fc1\.(.*)", r"mlp.fc1_x.\1")])
    else:
      block = _joined(block, r"(mlp)\.fc1_g\.(weight|bias)", ("fc1_g", "fc1"), "fc1")
  if model.layout == "parallel":
    return _named_by(_joined_in_parallel(block, model), _PARALLEL)
  if not separate:
    block = _joined(block, r"(attn\w*)\.[qkv]_proj\.(weight|bias)", _PROJECTIONS, "qkv")
  if model.parallel_branches > 1:
    return {_branched(name): array for name, array in block.items()}
  if eva:
    pairs = [(r"ls([12])\.gamma", r"gamma_\1")]
    if not separate:
      pairs.append((r"attn\.([qv])_proj\.bias", r"attn.\1_bias"))
    return _named_by(block, pairs)
  return block


def of_eva(model: Network | Model) -> bool:
  """Whether the class is timm's Eva or Beit: attention with rotary positions or no key bias."""
  return model.rotary != "none" or model.qkv_bias == "no_key"


def _separate_gate(model: Network) -> bool:
  """Whether timm's class for this model has a layer for the gate of its MLP."""
  of_dinov3 = model.rotary == "dinov3" and model.norm == "layer"
  return model.mlp_norm or not model.dense_bias or of_dinov3


def _joined(block: Arrays, pattern: str, parts: tuple[str, ...], whole: str) -> Arrays:
  """Concatenates the arrays of these parts, where all have one."""
  joined = dict(block)
  for module, kind in {re.fullmatch(pattern, name).groups() for name in _like(block, pattern)}:
    names = [f"{module}.{part}.{kind}" for part in parts]
    if all(name in joined for name in names):
      joined[f"{module}.{whole}.{kind}"] = np.concatenate([joined.pop(name) for name in names])
  return joined


def _like(names, pattern: str) -> list[str]:
  return [name for name in names if re.fullmatch(pattern, name)]


def _joined_in_parallel(block: Arrays, model: Network) -> Arrays:
  """The joined layers of a parallel block."""
  parts = ["mlp.fc1", *(f"attn.{projection}" for projection in _PROJECTIONS)]
  block = dict(block)
  block["in_proj.weight"] = np.concatenate([block.pop(f"{part}.weight") for part in parts])
  if model.qkv_bias == "all":
    block["in_proj.bias"] = np.concatenate([block.pop(f"{part}.bias") for part in parts])
  else:
    block["mlp_bias"] = block.pop("mlp.fc1.bias")
  if model.differential:
    both = [block.pop(f"{part}.weight") for part in ("attn.proj", "mlp.fc2")]
    block["out_proj.weight"] = np.concatenate(both, axis=1)
    block["out_proj.bias"] = block.pop("attn.proj.bias") + block.pop("mlp.fc2.bias")
    return block
  pairs = ((r"attn\.proj\.(.*)", r"attn_out_proj.\1"), (r"mlp\.fc2\.(.*)", r"mlp_out_proj.\1"))
  return _named_by(block, pairs)


def _named_by(block: Arrays, pairs) -> Arrays:
  """The arrays with names by pairs (pattern of a whole name, its new name)."""

  def new(name: str) -> str:
    for pattern, other in pairs:
      if re.fullmatch(pattern, name):
        return re.sub(pattern, other, name)
    return name

  return {new(name): array for name, array in block.items()}


def _branched(name: str) -> str:
  """The name of an array in a block with several branches."""
  for pattern, other in _BRANCHES:
    if match := re.fullmatch(pattern, name):
      return match.expand(other.format(match[2] or 0))
  return name
