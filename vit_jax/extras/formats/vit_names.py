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

from vit_jax.config.model import Translated

# Our sizes by their words; for sizes that we lack, the nearest one and the shape.
_SIZES = {"tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H", "so400m": "So400m"}


def _shape(width: int, depth: int, heads: int, mlp_dim: int) -> dict[str, int]:
  return dict(width=width, depth=depth, heads=heads, mlp_dim=mlp_dim)


_SHAPES = {
  "wee": ("S", _shape(256, 14, 4, 1280)),
  "dwee": ("S", _shape(256, 14, 4, 1280)),
  "pwee": ("S", _shape(256, 16, 4, 1280)),
  "dpwee": ("S", _shape(256, 16, 4, 1280)),
  "xsmall": ("S", _shape(256, 10, 4, 1024)),
  "little": ("S", _shape(320, 14, 5, 1792)),
  "dlittle": ("S", _shape(320, 14, 5, 1792)),
  "medium": ("S", dict(width=512, mlp_dim=2048, heads=8)),
  "mediumd": ("S", _shape(512, 20, 8, 2048)),
  "betwixt": ("S", _shape(640, 12, 10, 2560)),
  "so150m": ("B", dict(depth=18, width=896, mlp_dim=2304, heads=14)),
  "so150m2": ("B", _shape(832, 21, 13, 2176)),
  "intern300m": ("L", {}),
  "giant": ("L", dict(depth=40, width=1408, mlp_dim=6144)),
  "giantopt": ("L", dict(depth=40, width=1536, mlp_dim=6144)),
  "giant-opt": ("L", dict(depth=40, width=1536, mlp_dim=6144)),
  "gigantic": ("L", dict(depth=48, width=1664, mlp_dim=8192)),
  "enormous": ("L", _shape(1792, 64, 16, 15360)),
  "1b": ("L", _shape(2048, 24, 16, 5632)),
  "3b": ("L", _shape(3072, 24, 24, 8192)),
  "5b": ("L", _shape(2432, 56, 32, 9728)),
  "7b": ("L", _shape(4096, 40, 32, 8192)),
}
_SIZE = f"(?P<size>{'|'.join(sorted({*_SIZES, *_SHAPES}, key=len, reverse=True))})"
_PATCH = r"(?P<patch>[1-9]\d?)"
_SIDE = r"(?:_(?P<side>\d+))?"

_EXACT = dict(activation="gelu")


def _scaled(init: float) -> dict[str, Any]:
  return dict(layer_scale=True, layer_scale_init=init)


_CLASS_TOKEN = dict(pool="class_token", final_norm="tokens")
_DISTILLED = dict(pool="distilled")
_BESIDE = dict(pool="gap_beside_token", final_norm="pooled")
_SWIGLU = dict(mlp="gated", activation="silu")
_GIANT = _shape(1536, 40, 24, 6144)
_SWIGLU_GIANT = _shape(1536, 40, 24, 4096) | _SWIGLU
_CLIP = dict(first_norm="tokens", patch_bias=False, norm_epsilon=1e-5)
_EVA02 = dict(rotary="eva02", rotary_side=16)
_ROPE = dict(positions="none", rotary="axial") | _scaled(1e-5)
_DINO_V3 = dict(positions="none", rotary="dinov3", registers=4, norm_epsilon=1e-5) | _scaled(1e-5)
_AIM_V2 = dict(
  **dict(pool="gap", norm="rms", norm_epsilon=1e-5, first_norm="patches"),
  **dict(qkv_bias="none", dense_bias=False),
  **_SWIGLU,
)
_PERCEPTION = dict(rotary="perception") | _CLIP

# What the beginning of timm's names says.
_KINDS = {
  "vit": {},
  "deit": {},
  "deit3": _scaled(1e-6),
  "eva": _BESIDE,
  "eva02": dict(qkv_bias="no_key") | _BESIDE | _SWIGLU | _EVA02,
  "beit": dict(qkv_bias="no_key", positions="relative_table") | _BESIDE,
  "beitv2": dict(qkv_bias="no_key", positions="relative_table") | _BESIDE | _scaled(1e-5),
  "beit3": dict(attention_norm=True, mlp_norm=True, norm_epsilon=1e-5) | _BESIDE,
  "aimv2": _AIM_V2,
  "vit_pe_core": dict(pool="map_with_token", pool_heads=8) | _PERCEPTION,
  "vit_pe_lang": dict(pool="gap_beside_token", final_norm="none") | _PERCEPTION,
  "vit_pe_spatial": dict(pool="gap_beside_token", final_norm="none") | _PERCEPTION,
  "samvit": {},
  "vit_relpos": dict(pool="gap", positions="relative_mlp", relative_dim=128) | _scaled(1e-6),
  "vit_srelpos": dict(pool="gap", positions="relative_mlp", position_place="every_layer_shared")
  | _scaled(1e-6),
}
_SAM = dict(pool="gap", final_norm="none", norm_epsilon=1e-5, window=14, relative_axes=True)
# What the words after the patch say, and those before it, with _ behind them; {}: it is below.
_WORDS = {
  "gap": dict(pool="gap"),
  "map": dict(pool="map"),
  "siglip": dict(pool="map"),
  "dinov2": _scaled(1e-5),
  "tipsv2": _scaled(1.0),
  "reg1": dict(registers=1),
  "reg4": dict(registers=4),
  "36x1": dict(depth=36) | _scaled(1e-5),
  "18x2": dict(depth=18, parallel_branches=2) | _scaled(1e-5),
  "miil": dict(qkv_bias="none"),
  "distilled_": _DISTILLED,
  "clip": {},
  "quickgelu": dict(activation="quick_gelu"),
  "xp": dict(
    _CLIP, norm="rms", norm_epsilon=1e-6, layout="parallel", qkv_bias="none", qk_norm=True
  ),
  "rpn": dict(norm_place="after", layer_scale=False),
  "radio": dict(final_norm="none"),
  "v3": dict(registers=7),
  "v4": dict(registers=9),
  "rope": {},
  "mixed": dict(rotary="mixed"),
  "ape": dict(positions="1d"),
  "dinov3": dict(_DINO_V3, pool="gap_beside_token", qkv_bias="none"),
  "qkvb": dict(qkv_bias="no_key"),
  "lingbot": dict(_DINO_V3, qkv_bias="no_key"),
  "sapiens2": dict(_DINO_V3, registers=8, norm="rms", norm_epsilon=1e-6, qk_norm=True)
  | dict(layer_scale_place="attention", layer_scale_init=1.0)
  | _SWIGLU,
  "cls": _CLASS_TOKEN,
  "clsgap": _BESIDE,
  "plus": {},
  "plus_": {},
}
# The only sizes with this word.
_ONLY = {"36x1": ("small",), "plus": ("base",), "plus_": ("small", "huge")}
# Options of some names besides those of their words, in this order.
_ALSO = (
  (r"vit_base_patch16_gap_224", dict(heads=16)),
  (r"vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip_.*", dict(activation="gelu_tanh")),
  (r"vit_large_patch16_siglip_(gap_)?512", dict(activation="gelu_tanh")),
  (r"vit_(relpos_)?base_patch\d+_plus_.*", dict(width=896, mlp_dim=3584, heads=14)),
  (r"vit_base_patch\d+_plus_\d+", _scaled(1e-5)),
  (r"vit_\w+_clip_.*", _CLIP),
  # Without a class token: the norm after pooling is usual.
  (r"vit_(?!so150m_)\w+_reg\d_gap_\d+", dict(final_norm="pooled")),
  (r"vit_(dp?)?(wee|little|medium|mediumd|betwixt|so150m2)_\w+_reg\d_gap_\d+", _scaled(1e-5)),
  (r"vit_pwee_.*", _scaled(1e-5) | dict(layout="parallel")),
  (r"vit_dpwee_.*", dict(layout="parallel")),
  (r"vit_d(p?wee|little)_.*", dict(differential=True)),
  (r"vit_(medium|betwixt)_patch16_gap_.*", dict(qkv_bias="none") | _scaled(1e-6)),
  (r"vit_so150m2_.*", dict(qkv_bias="none")),
  (r"vit_giant_\w+_(dinov2|tipsv2)", _SWIGLU_GIANT),
  (r"vit_giant_\w+_radio_.*", _GIANT),
  (r"vit_(base|large)_\w+_radio_.*", _scaled(1e-5)),
  (r"vit_intern300m_.*", dict(final_norm="none") | _scaled(0.1)),
  (r"vit_base_patch16_rpn_224", dict(pool="gap", final_norm="pooled", qkv_bias="none")),
  # timm's Eva.
  (r"eva_giant_.*", dict(qkv_bias="no_key")),
  (r"eva(02)?_\w+_clip_.*", _CLASS_TOKEN),
  (r"eva02_tiny_.*", dict(mlp_dim=512)),
  (r"eva02_small_.*", dict(mlp_dim=1024)),
  (r"eva02_base_.*", dict(mlp_dim=2048, mlp_norm=True)),
  (r"eva02_large_.*", dict(mlp_dim=2730, mlp_norm=True)),
  (r"eva02_(base|large)_\w+_clip_.*", dict(attention_norm=True)),
  (
    r"eva02_enormous_.*",
    dict(mlp="plain", activation="gelu", norm_place="after", rotary="none", rotary_side=0),
  ),
  (r"vit_(small|base|large)_patch16_rope_(?!reg).*", _ROPE),
  (r"vit_\w+_rope_mixed_.*", dict(rotary="mixed")),
  (r"vit_\w+_rope_(mixed_)?ape_.*", dict(positions="1d")),
  (r"vit_\w+_rope_reg\d_.*", _EVA02 | dict(positions="none", qkv_bias="no_key") | _scaled(1e-5)),
  (r"vit_mediumd_\w+_rope_.*", dict(qkv_bias="none")),
  (r"vit_pe_\w+_384", dict(rotary_side=24)),
  (r"vit_pe_core_base_.*", dict(rotary_side=14)),
  (r"vit_pe_core_large_.*", dict(rotary_side=24)),
  (r"vit_pe_\w+_(448|512)", dict(rotary_side=32)),
  (r"vit_pe_\w+_gigantic_.*", dict(rotary="perception_from_0") | _shape(1536, 50, 16, 8960)),
  (r"vit_pe_core_gigantic_.*", dict(pool="map", pool_mlp_dim=6144)),
  (r"vit_pe_(lang|spatial)_gigantic_.*", dict(pool="gap") | _scaled(0.1)),
  (r"vit_pe_lang_large_.*", dict(depth=23) | _scaled(0.1)),
  (r"vit_pe_lang_gigantic_.*", dict(depth=47)),
  (r"vit_\w+_plus_patch16_dinov3.*", _SWIGLU),
  (r"vit_huge_plus_patch16_dinov3.*", dict(heads=20)),
  (r"vit_7b_patch16_dinov3", _SWIGLU),
  (r"vit_giant_patch16_lingbot", _SWIGLU_GIANT | dict(qkv_bias="none")),
  (r"vit_(large|huge)_patch16_sapiens2", dict(kv_heads=8, kv_heads_from=8)),
  (r"vit_giant_patch16_sapiens2", _GIANT | dict(kv_heads=12, kv_heads_from=8)),
  (r"vit_5b_patch16_sapiens2", dict(kv_heads=16, kv_heads_from=8)),
  # Others.
  (r"samvit_.*", _SAM | dict(neck="convolutions", neck_dim=256)),
  (r"samvit_base_.*", dict(global_blocks=(2, 5, 8, 11))),
  (r"samvit_large_.*", dict(global_blocks=(5, 11, 17, 23))),
  (r"samvit_huge_.*", dict(global_blocks=(7, 15, 23, 31))),
  (r"samvit_base_patch16_224", dict(positions="none", neck="norm", neck_dim=0)),
  (r"beit_base_.*", _scaled(0.1)),
  (r"beit_large_.*", _scaled(1e-5)),
  (r"aimv2_large_.*", dict(heads=8, mlp_dim=2816)),
  (r"aimv2_huge_.*", _shape(1536, 24, 12, 4096)),
  (r"vit_s?relpos_(?!base_patch\d+_plus)\w+", dict(qkv_bias="none")),
  (r"vit_relpos_(small|medium|base)_patch16_224", dict(final_norm="pooled")),
  (r"vit_relpos_medium_patch16_cls_224", dict(relative_dim=256)),
  (r"vit_srelpos_small_.*", dict(relative_dim=384)),
  (r"vit_srelpos_medium_.*", dict(relative_dim=512)),
  (r"vit_relpos_\w+_rpn_\d+", dict(layer_scale=False)),
)
# timm's models for tests.
_TEST = {
  "test_vit": _shape(64, 6, 2, 192),
  "test_vit2": _shape(64, 8, 2, 192)
  | dict(pool="gap", registers=1, final_norm="pooled")
  | _scaled(1e-5),
  "test_vit3": _shape(96, 9, 3, 192) | dict(pool="map_of_all", registers=1) | _scaled(1e-5),
  "test_vit4": _shape(96, 9, 3, 288)
  | dict(pool="gap", registers=1, final_norm="pooled", norm="rms")
  | _scaled(1e-5),
  "test_vit_relpos": _shape(96, 9, 3, 192)
  | _KINDS["vit_relpos"]
  | dict(qkv_bias="none", final_norm="pooled"),
}

# What ours lack, by patterns of names; the first pattern that matches counts.
_LACKING = pathlib.Path(__file__).with_name("vit_lacking.csv")

_TIMM_HYBRID = rf"vit_{_SIZE}_r(?P<depth>26|50)?_s(?P<stride>16|32)(?:_p8)?{_SIDE}(?:_in21k)?"
_KIND = f"(?P<kind>{'|'.join(_KINDS)})"
_TIMM = (
  rf"{_KIND}_{_SIZE}(?P<before>_plus|_distilled|)_patch{_PATCH}"
  rf"(?P<words>(?:_[a-z]\w*?|_\d+x\d)*?){_SIDE}"
)
_FLEXI = rf"flexivit_{_SIZE}"
_OLD_TAGS = r"_(in21k|in21ft1k|sam|dino)$"  # of timm, before tags followed a dot
_OLD_HYBRID = ("vit_base_resnet50_", "vit_base_r50_s16_")  # in timm before, and now

_HUB_WORDS = dict(_EXACT, norm_epsilon=1e-12)
_DINO_V2 = _EXACT | _scaled(1.0)
_LETTERS = {"ti": "Ti", "s": "S", "b": "B", "l": "L", "h": "H"}
_LETTER = f"(?P<letter>{'|'.join(_LETTERS)})"
_OF_DINO_V3 = _EXACT | dict(_DINO_V3, qkv_bias="no_key", layer_scale_init=1.0)
_DINO_V3_NAME = rf"facebook/dinov3-vit{{}}{_PATCH}{{}}-pretrain-\w+"
_PLUS = (("", "plus"), ("plus", ""))  # words before and behind the patch; the Hub has the first
# Other names: pattern, the patch if the name does not give it, options.
_OTHERS = (
  # Transformers.
  (rf"facebook/deit-{_SIZE}-distilled-patch{_PATCH}-(?P<side>\d+)", 0, _HUB_WORDS | _DISTILLED),
  (r"facebook/dinov2-(?P<size>giant)", 14, _DINO_V2 | _SWIGLU_GIANT),
  (
    r"facebook/dinov2-with-registers-(?P<size>giant)",
    14,
    _DINO_V2 | _SWIGLU_GIANT | dict(registers=4),
  ),
  (_DINO_V3_NAME.format("(?P<letter>s|b|l)", ""), 0, _OF_DINO_V3),
  *(
    (_DINO_V3_NAME.format(f"(?P<letter>{letter}){before}", behind), 0, _OF_DINO_V3 | options)
    for letter, options in (("s", _SWIGLU), ("h", _SWIGLU | dict(heads=20)))
    for before, behind in _PLUS
  ),
  (_DINO_V3_NAME.format("(?P<size>7b)", ""), 0, _OF_DINO_V3 | _SWIGLU | dict(qkv_bias="none")),
  (
    rf"openai/clip-vit-{_SIZE}-patch{_PATCH}(?:-(?P<side>\d+))?",
    0,
    _CLIP | dict(activation="quick_gelu"),
  ),
  (
    rf"microsoft/beit-{_SIZE}-patch{_PATCH}-(?P<side>\d+)(?:-pt22k-ft22k)?",
    0,
    _HUB_WORDS | _KINDS["beit"] | _scaled(0.1),
  ),
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
  plain = re.sub(_OLD_TAGS, "", name.partition(".")[0]).replace(*_OLD_HYBRID)
  if found := _of_others(name):
    return found
  with _LACKING.open(encoding="utf-8", newline="") as rows:
    for row in csv.DictReader(rows):
      if re.fullmatch(row["name"], plain):
        return _alike(name, lacking=row["lacking"])
  found = _of_timm(plain) or _hybrid(_PUBLISHED_HYBRID, name)
  return found or _alike(name, sure=False)


def _of_timm(name: str) -> Translated | None:
  if found := _hybrid(_TIMM_HYBRID, name, stem_norms="timm", **_EXACT):
    return found
  if name in _TEST:
    return Translated("ViT-Ti/16", _EXACT | _TEST[name])
  name = re.sub(r"(_\d+)_miil$", r"_miil\1", name)
  match = re.fullmatch(_TIMM, name) or re.fullmatch(_FLEXI, name)
  if not match:
    return None
  found = match.groupdict()
  options = _EXACT | _KINDS[found.get("kind") or "vit"]
  words = [f"{word}_" for word in (found.get("before") or "").split("_")[1:]]
  words += (found.get("words") or "").split("_")[1:]
  for word in words:
    if word not in _WORDS or found["size"] not in _ONLY.get(word, [found["size"]]):
      return None
    options |= _WORDS[word]
  for pattern, more in _ALSO:
    if re.fullmatch(pattern, name):
      options |= more
  return _named(found | dict(usual=16), _as_ours(options))


def _as_ours(options: dict[str, Any]) -> dict[str, Any]:
  """The options without the initial value of a LayerScale that the model has not."""
  if options.get("layer_scale", True):
    return options
  return {key: x for key, x in options.items() if not key.startswith("layer_scale")}


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
