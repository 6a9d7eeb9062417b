"""Makes modules from the paper's names ("ViT-L/16", "R152x2", "R50x1+ViT-B/16")."""

import dataclasses
import re

import jax.numpy as jnp

from vit_jax import config
from vit_jax.config import suggestions
from vit_jax.models import aliases
from vit_jax.models.resnet import ResNet
from vit_jax.models.vit import ViT
from vit_jax.process.text import shown

# Shapes of the Transformer encoder (Table 1 of the paper; b, of Figure 4, is B with sizes halved).
SIZES = {
  "Ti": dict(depth=12, width=192, mlp_dim=768, heads=3),
  "S": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "b": dict(depth=12, width=384, mlp_dim=1536, heads=6),
  "B": dict(depth=12, width=768, mlp_dim=3072, heads=12),
  "L": dict(depth=24, width=1024, mlp_dim=4096, heads=16),
  "H": dict(depth=32, width=1280, mlp_dim=5120, heads=16),
}

# Residual units in each stage of a ResNet.
STAGES = {
  "26": (2, 2, 2, 2),
  "50": (3, 4, 6, 3),
  "101": (3, 4, 23, 3),
  "152": (3, 8, 36, 3),
  "200": (3, 24, 36, 3),
}

# Heads of axial attention inside a ResNet; the paper does not state the number.
AXIAL_RESNET_HEADS = 8

# Settings that are refused unless the name already stands for a model that has them, and such a
# model: stages would make a ViT a hybrid, and heads a ResNet axial.
KINDS = {"stages": "R50x1+ViT-B/16", "heads": "Axial-R50"}

NAMES = (
  "ViT-Ti/16",
  "ViT-S/16",
  "ViT-S/32",
  "ViT-b/16",
  "ViT-b/32",
  "ViT-B/8",
  "ViT-B/16",
  "ViT-B/32",
  "ViT-L/16",
  "ViT-L/32",
  "ViT-H/14",
  "R50x1",
  "R50x2",
  "R50x3",
  "R101x1",
  "R101x3",
  "R152x1",
  "R152x2",
  "R152x4",
  "R200x3",
  "R+ViT-Ti/16",
  "R26+ViT-S/32",
  "R26+ViT-B/32",
  "R50x1+ViT-B/32",
  "R50x1+ViT-B/16",
  "R50x1+ViT-L/32",
  "R50x1+ViT-L/16",
  "Axial-ViT-B/32",
  "Axial-ViT-B/16",
  "Axial-R50",
)

_VIT = re.compile(r"(?P<axial>Axial-)?ViT-(?P<size>\w+)/(?P<patch>[1-9]\d{0,3})", re.ASCII)
_RESNET = re.compile(r"R(?P<depth>\d+)x(?P<factor>[1-9]\d?)", re.ASCII)
_AXIAL_RESNET = re.compile(r"Axial-R(?P<depth>\d+)")
_HYBRID = re.compile(
  r"R(?:(?P<depth>\d+)(?:x(?P<factor>[1-9]\d?))?)?\+ViT-(?P<size>\w+)/(?P<stride>\d\d?)"
  r"(?:p(?P<patch>[1-9]\d?))?",
  re.ASCII,
)


def names() -> tuple[str, ...]:
  """The models that the paper and the published weights name."""
  return NAMES


def create(name: str, **options) -> ViT | ResNet:
  """The Flax module called `name`.

  Args:
    name: one of `names()`, or a variant: any patch size ("ViT-B/20"), any width factor below 100
      ("R101x2"), any of the known ResNets under any of the known Transformers, with larger patches
      on the map ("R50x1+ViT-B/16p2": 2 x 2 positions of the /16 ResNet's map, 32 pixels).
    **options: fields of `vit_jax.models.vit.ViT` or `vit_jax.models.resnet.ResNet`, which replace
      the fields that the name implies.

  Returns:
    A module for which `model.apply({"params": params}, images, train=False)` gives
    (logits, features); images are (B, H, W, 3) floats in [-1, 1].

  Raises:
    ValueError: there is no such model, it lacks an option, or options contradict each other.
  """
  kind, fields = _described(name)
  known = _options(kind)
  for key in options:
    if key not in known:
      raise ValueError(f"{key} is no option of {name}, which has {', '.join(sorted(known))}.")
  module = kind(**(fields | options))
  _check(name, module)
  return module


def configured(settings: config.Model) -> ViT | ResNet:
  """The module that a config describes; settings at their defaults keep the value of the name.

  If config.model.compute_dtype is still "auto", the module computes in bfloat16.

  Raises:
    ValueError: as `create`, or a setting would make another kind of model than the name says; the
      message begins with the wrong setting.
    ConfigError: the number of classes is left to the training data.
  """
  if not settings.num_classes:
    raise config.ConfigError(
      "config.model.num_classes=0 stands for as many as the training data has, which is not known "
      "here; give a number."
    )
  given = {
    field.name: value
    for field in dataclasses.fields(settings)
    if (value := getattr(settings, field.name)) != field.default
  }
  if "compute_dtype" in given:
    kind = given.pop("compute_dtype")
    given["dtype"] = jnp.dtype("bfloat16" if kind == config.AUTO else kind)
  name = given.pop("name", settings.name)
  kind, named = _described(name)
  options = _options(kind) - (KINDS.keys() - named.keys())
  lacking = [key for key in given if key not in options]
  if lacking:
    flags = " ".join(f"--config.model.{key}={getattr(config.Model(), key)}" for key in lacking)
    other = f", but of {KINDS[lacking[0]]}" if lacking[0] in KINDS else ""
    raise ValueError(
      f"{lacking[0]} is no option of {name}{other}; give {flags} to leave out what it lacks."
    )
  return create(name, **given)


def _options(kind) -> set[str]:
  """The fields of a module class that are options."""
  return {field.name for field in dataclasses.fields(kind)} - {"parent", "name"}


def _described(name: str):
  """The module class and its fields, by the name alone."""
  if (match := _VIT.fullmatch(name)) and match["size"] in SIZES:
    fields = SIZES[match["size"]] | dict(patch=int(match["patch"]))
    # Attention along rows and columns has no place for a class token.
    return ViT, fields | (dict(axial=True, pool="gap") if match["axial"] else {})
  if (match := _RESNET.fullmatch(name)) and match["depth"] in STAGES:
    return ResNet, dict(stages=STAGES[match["depth"]], width=64 * int(match["factor"]))
  if (match := _AXIAL_RESNET.fullmatch(name)) and match["depth"] in STAGES:
    return ResNet, dict(stages=STAGES[match["depth"]], width=64, heads=AXIAL_RESNET_HEADS)
  if (match := _HYBRID.fullmatch(name)) and match["size"] in SIZES:
    stem = _stem(match["depth"], int(match["stride"]), match["patch"])
    if stem:
      return ViT, SIZES[match["size"]] | stem | dict(stem_width=64 * int(match["factor"] or 1))
  raise ValueError(
    f"name={shown(name)} is no model; nearest: {', '.join(_nearest(name))} "
    "(1 to 9999 pixels may follow the slash of a ViT)."
  )


def _nearest(name: str) -> list[str]:
  """The model that others call so, then names spelled alike; the first names if there are none."""
  try:
    _described(translated := aliases.ours(name))
  except (ValueError, RecursionError):
    translated = ""
  close = [translated] * bool(translated) + suggestions.alike(name, sorted(NAMES), 0.5)
  return list(dict.fromkeys(close or NAMES))[:5]


def _stem(depth: str | None, stride: int, patch: str | None) -> dict | None:
  """Stages and patch size of a hybrid whose map divides by `stride`; None if unknown.

  Patches are 1 x 1 on the map unless the name says `patch`.

  With /32 the tokens are the output of stage 4. With /16 the units of stage 4 are added to stage 3
  (Section 3.1). "R+" has only the root, with patches of 8 x 8. Its published name says 16, although
  its tokens are 32 pixels apart.
  """
  if depth is None:
    return dict(stages=(), patch=8) if stride == 16 and not patch else None
  if depth not in STAGES or stride not in (16, 32):
    return None
  one, two, three, four = STAGES[depth]
  stages = (one, two, three, four) if stride == 32 else (one, two, three + four)
  return dict(stages=stages, patch=int(patch or 1))


def _check(name: str, module: ViT | ResNet):
  """Raises an error if fields contradict each other."""
  if module.heads and module.width % module.heads:
    heads = [h for h in range(1, module.width + 1) if module.width % h == 0]
    near = min(heads, key=lambda h: abs(h - module.heads))
    raise ValueError(
      f"heads={module.heads} does not divide the width {module.width} of {name}; nearest: {near}."
    )
  if isinstance(module, ResNet):
    if module.width % 32:
      raise ValueError(
        f"width={module.width} of {name} is not divisible by the 32 groups of GroupNorm; "
        "make it a multiple of 32."
      )
    return
  if module.axial and module.pool == "class_token":
    raise ValueError(
      f"pool='class_token' does not suit {name}: axial attention has no place for a class token; "
      "use 'gap' or 'map'."
    )
  if module.positions == "2d" and module.width % 2:
    raise ValueError(
      f"positions='2d' gives row and column half of the width each, and the width of {name}, "
      f"{module.width}, is odd; use '1d' or an even width."
    )
  if module.positions in ("none", "relative") and module.position_place != "stem":
    raise ValueError(
      f"position_place={module.position_place!r} says where position embeddings are added to the "
      f"tokens, and positions={module.positions!r} adds none to them; use '1d' or '2d'."
    )
