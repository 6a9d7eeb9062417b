"""3-Augment, the augmentation of DeiT III."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, Size
from vit_jax.config.fields import name_of_kind
from vit_jax.data.augmentation import operations as o

_RADII = 0.1, 2.0  # pixels


@dataclasses.dataclass(frozen=True)
class ThreeAugment(Augmentation):
  """One of three with equal probability: grey, solarized from 128 on, or blurred.

  The radius of the blur is uniform from 0.1 to 2 pixels. Colour jitter, the fourth part of
  3-Augment, is a step of its own.

  Source: Touvron et al., "DeiT III: Revenge of the ViT", 2022, Section 3, and its code.
  """

  moves_pixels = False

  kind: str = name_of_kind("three_augment", "grey, solarized or blurred, as in DeiT III")

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The operation of an image."""
    number, place = rng.random(2)
    radius = float(_RADII[0] + (_RADII[1] - _RADII[0]) * place)
    every = (
      functools.partial(o.grey),
      functools.partial(o.solarize, threshold=128),
      functools.partial(o.blur, radius=radius),
    )
    return [every[int(len(every) * number)]]
