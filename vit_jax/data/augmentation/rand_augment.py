"""RandAugment in the published TensorFlow form."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, Size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.data.augmentation import operations as o

_SIDE = 224  # pixels; the images for which distances are published


@dataclasses.dataclass(frozen=True)
class RandAugment(Augmentation):
  """RandAugment: some operations in turn, each drawn from 16 with equal probability.

  All have one magnitude, and are always done. Posterize and solarize change an image most at low
  magnitudes, as published; colour, contrast, brightness and sharpness not at all at 5.

  Four things differ from the published code. Contrast is about the mean of the image, there about
  the number of pixels divided by 256. A threshold of solarize over 255 leaves the image as it is;
  there 256 becomes 0 in 8 bits, which inverts it. More than 8 bits of posterize leave it as it is;
  there one bit is left. Distances are published in pixels of images of about 224; here they grow
  with the image.

  Source: Cubuk et al., "RandAugment", 2019, and its TensorFlow code in EfficientNet's repository.
  """

  kind: str = name_of_kind("rand_augment", "RandAugment, as published in TensorFlow")
  layers: int = setting(2, "operations for each image", low=1, high=16)
  magnitude: float = setting(10.0, "strength of all operations", low=0.0, high=30.0)

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The operations of an image."""
    return [self._one(rng, size) for _ in range(self.layers)]

  def _one(self, rng, size):
    number, sign, row, column = rng.random(4)
    sign = -1 if sign < 0.5 else 1
    height, width = sides(size)
    choices = operations(self.magnitude, sign, size, int(height * row), int(width * column))
    return choices[int(len(choices) * number)]


def operations(
  magnitude: float, sign: int, size: Size, row: int, column: int
) -> Sequence[Callable]:
  """The operations at a magnitude, in their published order.

  Args:
    magnitude: 10 is the upper end of the published ranges.
    sign: -1 or 1, the direction of movements.
    size: of the image, pixels.
    row, column: centre of a square that is cut out.
  """
  share = magnitude / 10
  down, right = (side / _SIDE for side in sides(size))
  factor = 0.1 + 1.8 * share
  of = functools.partial
  return (
    of(o.auto_contrast),
    of(o.equalize),
    of(o.invert),
    of(o.rotate, degrees=sign * 30 * share),
    of(o.posterize, bits=min(max(1, int(4 * share)), 8)),
    of(o.solarize, threshold=int(256 * share)),
    of(o.color, factor=factor),
    of(o.contrast, factor=factor),
    of(o.brightness, factor=factor),
    of(o.sharpness, factor=factor),
    of(o.shear_x, shift=sign * 0.3 * share),
    of(o.shear_y, shift=sign * 0.3 * share),
    of(o.translate_x, distance=sign * 100 * share * right),
    of(o.translate_y, distance=sign * 100 * share * down),
    of(o.cutout, row=row, column=column, reach=int(40 * share * min(down, right))),
    of(o.solarize_add, addition=int(110 * share)),
  )
