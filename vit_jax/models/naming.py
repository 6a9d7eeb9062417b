"""From the paper's names ("ViT-L/16") to modules."""

import dataclasses
import re

from vit_jax.config import nearest
from vit_jax.models import vit


@dataclasses.dataclass(frozen=True)
class Size:
  """Shape of a Transformer encoder (Table 1 of the paper)."""

  depth: int
  width: int
  mlp_dim: int
  heads: int


SIZES = {
  "Ti": Size(depth=12, width=192, mlp_dim=768, heads=3),
  "S": Size(depth=12, width=384, mlp_dim=1536, heads=6),
  "b": Size(depth=12, width=384, mlp_dim=1536, heads=6),  # ViT-b of Fig. 4: B, halved
  "B": Size(depth=12, width=768, mlp_dim=3072, heads=12),
  "L": Size(depth=24, width=1024, mlp_dim=4096, heads=16),
  "H": Size(depth=32, width=1280, mlp_dim=5120, heads=16),
}

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
)


def names() -> tuple[str, ...]:
  """The models that the paper and its published weights name."""
  return NAMES


def shape(name: str) -> tuple[Size, int]:
  """The encoder's size and the patch size in pixels that `name` stands for.

  Raises:
    ValueError: no such model; lists the nearest names.
  """
  match = re.fullmatch(r"ViT-(\w+)/([1-9]\d*)", name)
  if not match or match[1] not in SIZES:
    raise ValueError(
      f"There is no model {name!r}; nearest: {nearest(name, NAMES)} "
      "(any number of pixels may follow the slash)."
    )
  return SIZES[match[1]], int(match[2])


def resolve(
  name: str, *, depth: int = 0, width: int = 0, mlp_dim: int = 0, heads: int = 0
) -> tuple[Size, int]:
  """As `shape`, with the size's own numbers replaced by the arguments that are not 0.

  Raises:
    ValueError: no such model, or a width that the heads do not divide.
  """
  size, patch = shape(name)
  given = dict(depth=depth, width=width, mlp_dim=mlp_dim, heads=heads)
  size = dataclasses.replace(size, **{key: value for key, value in given.items() if value})
  if size.width % size.heads:
    raise ValueError(f"{name}: width {size.width} is not divisible by heads {size.heads}.")
  return size, patch


def create(
  name: str, *, depth: int = 0, width: int = 0, mlp_dim: int = 0, heads: int = 0, **options
) -> vit.ViT:
  """The Flax module called `name`.

  Args:
    name: one of `names()`, or the same with another patch size, such as "ViT-B/20".
    depth, width, mlp_dim, heads: replace the named size's own where they are not 0.
    **options: further fields of `vit_jax.models.vit.ViT`.

  Returns:
    A module for which `model.apply({"params": params}, images, train=False)` gives
    (logits, features); images are (B, H, W, 3) floats in [-1, 1].

  Raises:
    ValueError: as `resolve`.
  """
  size, patch = resolve(name, depth=depth, width=width, mlp_dim=mlp_dim, heads=heads)
  return vit.ViT(patch=patch, **dataclasses.asdict(size), **options)
