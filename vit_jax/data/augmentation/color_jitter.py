"""Colour jitter: random brightness, contrast and colour."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, Size
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.data.augmentation import operations as o


@dataclasses.dataclass(frozen=True)
class ColorJitter(Augmentation):
  """Brightness, contrast and colour in a random order, each by a random factor.

  Source: torchvision's `ColorJitter` with three equal arguments; DeiT III takes 0.3.
  """

  moves_pixels = False

  kind: str = name_of_kind("color_jitter", "random brightness, contrast and colour")
  strength: float = setting(
    0.3, "factors are uniform from 1 - strength to 1 + strength", low=0.0, high=1.0
  )

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The three operations of an image."""
    factors = 1 + self.strength * (2 * rng.random(3) - 1)
    order = rng.random(3).argsort()
    jitters = [
      functools.partial(operation, factor=float(factor))
      for operation, factor in zip((o.brightness, o.contrast, o.color), factors, strict=True)
    ]
    return [jitters[place] for place in order]
