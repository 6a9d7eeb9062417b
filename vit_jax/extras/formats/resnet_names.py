"""Names of BiT's ResNets in other libraries: timm, Transformers, published files."""

import re

from vit_jax.config.model import Translated

_SAME = (  # timm's names, and those of the published files
  r"(?:timm/)?resnetv2_(?P<depth>50|101|152)x(?P<factor>\d)_bit[ms]?(?:[_.].*)?",
  r"bit-[sm]-r(?P<depth>50|101|152)x(?P<factor>\d)(?:-.*)?(?:\.npz)?",
)
_DEEP = r"(?:timm/)?resnetv2_50d_gn(?:\..*)?"
_ALIKE = r".*\bbit-?(?P<depth>50|101|152)\b.*"
_OTHERS = r"(?:.*/)?resnet(?:v2_|-)?(?P<depth>18|34|50|101|152)(?!\d).*"


def translate(name: str) -> Translated | None:
  """As a member of `registry.MODEL_NAMES`."""
  for pattern in _SAME:
    if match := re.fullmatch(pattern, name):
      return Translated("R{depth}x{factor}".format(**match.groupdict()))
  if re.fullmatch(_DEEP, name):
    return Translated("R50x1", dict(unit_kind="d"))
  if match := re.fullmatch(_ALIKE, name):
    return Translated(f"R{match['depth']}x1", sure=False)
  if match := re.fullmatch(_OTHERS, name):
    depth = max(int(match["depth"]), 50)
    lacking = "another stem or normalisation than BiT, which no model here has"
    return Translated(f"R{depth}x1", lacking=lacking)
  return None
