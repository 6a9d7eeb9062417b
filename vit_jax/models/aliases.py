"""Translates names of the paper's models in other libraries.

It knows names of timm ("vit_base_patch16_224", "resnetv2_50x1_bit.goog_in21k"), Hugging Face
("google/vit-large-patch32-384"), torchvision ("vit_b_16"), OpenCLIP ("ViT-B-16") and the published
files ("B_16-i21k-300ep.npz", "R26_S_32", "BiT-M-R50x1").
"""

import re

_SIZES = {"tiny": "Ti", "small": "S", "base": "B", "large": "L", "huge": "H"}
_SIZES |= {size.lower(): size for size in _SIZES.values()}
_WORDS = "|".join(sorted(_SIZES, key=len, reverse=True))
_FORMS = (
  # A ResNet: depth, factor.
  (r"(?:resnetv2_|.*bit-?(?:[sm]-)?)r?(?P<depth>\d+)x(?P<factor>\d)(?!\d).*", "R{depth}x{factor}"),
  (r".*\bbit-(?P<depth>50|101|152)\b.*", "R{depth}x1"),
  (r"resnet-?(?P<depth>50|101|152)(?!\d).*", "R{depth}x1"),
  # A hybrid with only the root of a ResNet, and other hybrids: size, depth, pixels between tokens.
  (rf"(?:vit_)?(?P<size>{_WORDS})_r_s(?P<patch>16)(?!\d).*", "R+ViT-{size}/{patch}"),
  (r"r_(?P<size>ti|s|b|l)_(?P<patch>16)(?!\d).*", "R+ViT-{size}/{patch}"),
  (rf"(?:vit_)?(?P<size>{_WORDS})_r(?P<depth>26|50)_s(?P<patch>16|32)(?!\d).*", "{hybrid}"),
  (r"r(?P<depth>26|50)\+?_?(?:vit-)?(?P<size>ti|s|b|l)_(?P<patch>16|32)(?!\d).*", "{hybrid}"),
  (
    rf".*vit[-_](?:hybrid[-_])?(?P<size>{_WORDS})[-_](?:bit|resnet50)(?!\d).*",
    "R50x1+ViT-{size}/16",
  ),
  # A Vision Transformer: size, patch.
  (
    rf"(?:.*[/_-])?(?:vit|deit)[-_.]?(?P<size>{_WORDS})[-_/.]?(?:(?:patch|p)[-_]?)?(?P<patch>\d\d?)"
    r"(?!\d).*",
    "ViT-{size}/{patch}",
  ),
  (r"(?P<size>ti|s|b|l|h)[-_/](?P<patch>\d\d?)(?!\d).*", "ViT-{size}/{patch}"),
)


def ours(name: str) -> str:
  """Our name of the model that other libraries call `name`; "" if the name is not recognised."""
  for form, template in _FORMS:
    match = re.fullmatch(form, name.lower())
    if match:
      found = match.groupdict()
      if "size" in found:
        found["size"] = _SIZES[found["size"]]
      if template == "{hybrid}":
        factor = "x1" if found["depth"] == "50" else ""
        template = f"R{{depth}}{factor}+ViT-{{size}}/{{patch}}"
      return template.format(**found)
  return ""
