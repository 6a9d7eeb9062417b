"""Names of ViTs and hybrids in other libraries: timm, Transformers, torchvision, published files.

timm's names are those of version 1.0.31: a name gives the size, the patch, words for the variant
and the side of the images, as in "vit_base_patch14_reg4_dinov2". The tag after a dot names weights,
never another architecture. Transformers' names are those of the repositories on the Hub; their
epsilons are the defaults of its configurations.
"""

import csv
import pathlib
import re
from typing import Any

from vit_jax.config.model_names import Translated

# Our sizes by their words; for sizes that we lack, the nearest one and the shape.
_SIZES = {"tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H", "so400m": "So400m"}
_SHAPES = {
  "medium": ("S", dict(width=512, mlp_dim=2048, heads=8)),
  "so150m": ("B", dict(depth=18, width=896, mlp_dim=2304, heads=14)),
  "giant": ("L", dict(depth=40, width=1408, mlp_dim=6144)),
  "giantopt": ("L", dict(depth=40, width=1536, mlp_dim=6144)),
  "giant-opt": ("L", dict(depth=40, width=1536, mlp_dim=6144)),
  "gigantic": ("L", dict(depth=48, width=1664, mlp_dim=8192)),
}
_SIZE = f"(?P<size>{'|'.join(sorted({*_SIZES, *_SHAPES}, key=len, reverse=True))})"
_PATCH = r"(?P<patch>[1-9]\d?)"
_SIDE = r"(?:_(?P<side>\d+))?"

_EXACT = dict(activation="gelu")


def _scaled(init: float) -> dict[str, Any]:
  return dict(layer_scale=True, layer_scale_init=init)


# The words after the patch in timm's names.
_WORDS = {
  "gap": dict(pool="gap"),
  "map": dict(pool="map"),
  "siglip": dict(pool="map"),
  "dinov2": _scaled(1e-5),
  "tipsv2": _scaled(1.0),
  "plus": dict(width=896, mlp_dim=3584, heads=14) | _scaled(1e-5),
  "36x1": dict(depth=36) | _scaled(1e-5),
  "reg1": dict(registers=1),
  "reg4": dict(registers=4),
}
_ONLY = {"plus": "base", "36x1": "small"}  # the only size with this word
# Options of some names besides those of their words.
_ALSO = (
  (r"vit_base_patch16_gap_224", dict(heads=16)),
  (r"vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*", dict(activation="gelu_tanh")),
  (r"vit_large_patch16_siglip_(gap_)?512", dict(activation="gelu_tanh")),
  (r"deit3_.*", _scaled(1e-6)),
)

# What ours lack, by patterns of names; the first pattern that matches counts.
_LACKING = pathlib.Path(__file__).with_name("vit_lacking.csv")

_TIMM_HYBRID = rf"vit_{_SIZE}_r(?P<depth>26|50)?_s(?P<stride>16|32)(?:_p8)?{_SIDE}(?:_in21k)?"
_TIMM = rf"(?:vit|deit3?)_{_SIZE}_patch{_PATCH}(?P<words>(?:_[a-z]\w*?|_36x1)*?){_SIDE}"
_FLEXI = rf"flexivit_{_SIZE}"
_OLD_TAGS = r"_(in21k|in21ft1k|sam|dino)$"  # of timm, before tags followed a dot

_HUB_WORDS = dict(_EXACT, norm_epsilon=1e-12)
_DINO_V2 = _EXACT | _scaled(1.0)
_LETTERS = {"ti": "Ti", "s": "S", "b": "B", "l": "L", "h": "H"}
_LETTER = f"(?P<letter>{'|'.join(_LETTERS)})"
# Other names: pattern, the patch if the name does not give it, options.
_OTHERS = (
  # Transformers.
  (rf"(?:.+/)?(?:vit|deit)-{_SIZE}-patch{_PATCH}-(?P<side>\d+)(?:-in21k)?", 0, _HUB_WORDS),
  (rf"facebook/dino-vit{_LETTER}{_PATCH}", 0, _HUB_WORDS),
  (r"facebook/vit-mae-(?P<size>base|large)", 16, _HUB_WORDS),
  (r"facebook/vit-mae-(?P<size>huge)", 14, _HUB_WORDS),
  (rf"facebook/vit-msn-{_SIZE}(?:-{_PATCH})?", 16, _EXACT),
  (rf"facebook/dinov2-{_SIZE}", 14, _DINO_V2),
  (rf"facebook/dinov2-with-registers-{_SIZE}", 14, _DINO_V2 | dict(registers=4)),
  (rf"google/siglip2?-{_SIZE}-patch{_PATCH}-(?P<side>\d+)", 0, dict(pool="map")),
  # torchvision.
  (rf"vit_{_LETTER}_{_PATCH}", 0, _EXACT),
  # The published files.
  (rf"(?:vit-)?{_LETTER}_{_PATCH}(?:-.*)?(?:\.npz)?", 0, {}),
)
_PUBLISHED_HYBRID = rf"r(?P<depth>26|50)?(?:\+vit-|_){_LETTER}_(?P<stride>16|32)(?:-.*)?(?:\.npz)?"
# Names of models that may be ViTs, with variants that are not known here.
_ALIKE = (
  rf".*(?:vit|deit)3?[-_.]?(?:{_SIZE}|{_LETTER})[-_/.]?(?:patch|p)?[-_]?{_PATCH}(?!\d).*",
  rf".*vit-hybrid-{_SIZE}-bit-.*",
)


def translate(name: str) -> Translated | None:
  """As a member of `registry.MODEL_NAMES`."""
  name = re.sub(r"^((hf[-_]hub:)?timm/)", "", name)
  plain = re.sub(_OLD_TAGS, "", name.partition(".")[0])
  with _LACKING.open(encoding="utf-8", newline="") as rows:
    for row in csv.DictReader(rows):
      if re.fullmatch(row["name"], plain):
        return _alike(name, lacking=row["lacking"])
  found = _of_timm(plain) or _of_others(name) or _hybrid(_PUBLISHED_HYBRID, name)
  return found or _alike(name, sure=False)


def _of_timm(name: str) -> Translated | None:
  if found := _hybrid(_TIMM_HYBRID, name, stem_norms="timm", **_EXACT):
    return found
  match = re.fullmatch(_TIMM, name) or re.fullmatch(_FLEXI, name)
  if not match:
    return None
  options = dict(_EXACT)
  words = match.groupdict().get("words") or ""
  for word in words.split("_")[1:]:
    if word not in _WORDS or _ONLY.get(word, match["size"]) != match["size"]:
      return None
    options |= _WORDS[word]
  for pattern, more in _ALSO:
    if re.fullmatch(pattern, name):
      options |= more
  return _named(match.groupdict() | dict(usual=16), options)


def _of_others(name: str) -> Translated | None:
  for pattern, patch, options in _OTHERS:
    if match := re.fullmatch(pattern, name):
      return _named(match.groupdict() | dict(usual=patch), options)
  return None


def _hybrid(pattern: str, name: str, **options) -> Translated | None:
  match = re.fullmatch(pattern, name)
  if not match:
    return None
  resnet = {None: "R", "26": "R26", "50": "R50x1"}[match["depth"]]
  size, shape = _size(match.groupdict())
  side = match.groupdict().get("side") or 0
  return Translated(f"{resnet}+ViT-{size}/{match['stride']}", shape | options, int(side))


def _named(found: dict[str, Any], options: dict[str, Any]) -> Translated:
  """The model of a size and a patch; `usual` is the patch if the name does not give it."""
  size, shape = _size(found)
  patch = int(found.get("patch") or found["usual"])
  side = int(found.get("side") or 0)
  # timm ignores pixels at the edge that no whole patch covers.
  return Translated(f"ViT-{size}/{patch}", shape | options, side - side % patch)


def _size(found: dict[str, Any]) -> tuple[str, dict[str, int]]:
  """Our size, and the shape if it differs."""
  if letter := found.get("letter"):
    return _LETTERS[letter], {}
  if found["size"] in _SIZES:
    return _SIZES[found["size"]], {}
  return _SHAPES[found["size"]]


def _alike(name: str, **differences) -> Translated | None:
  """A model of the same size and patch; without them ViT-B/16, if ours lack something."""
  sized, hybrid = (re.fullmatch(pattern, name) for pattern in _ALIKE)
  if hybrid:
    size, _ = _size(hybrid.groupdict())
    return Translated(f"R50x1+ViT-{size}/16", **differences)
  if sized:
    return Translated(_named(sized.groupdict(), {}).name, **differences)
  if differences.get("lacking"):
    return Translated("ViT-B/16", **differences)
  return None
