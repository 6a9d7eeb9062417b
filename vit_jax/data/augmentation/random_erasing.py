"""Random erasing: a rectangle of the image becomes noise."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, Size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.data.augmentation import operations as o

_TRIES = 10
_LEAST_AREA = 0.02
_ASPECTS = math.log(0.3), math.log(1 / 0.3)


@dataclasses.dataclass(frozen=True)
class RandomErasing(Augmentation):
  """Replaces a random rectangle by uniform noise.

  Its area is uniform from 2% of the image to `most_area`, and the logarithm of its height / width
  from that of 0.3 to that of 1 / 0.3. A rectangle that does not fit is drawn again, ten times at
  most.

  Source: Zhong et al., "Random Erasing Data Augmentation", 2020, Algorithm 1, which draws the
  aspect itself uniformly; its logarithm is timm's.
  """

  moves_pixels = False

  kind: str = name_of_kind("random_erasing", "a random rectangle becomes noise")
  probability: float = setting(0.25, "probability that an image is changed", low=0.0, high=1.0)
  most_area: float = setting(
    1 / 3, "largest fraction of the image's area", low=_LEAST_AREA, high=1.0
  )

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The rectangle of an image, with its noise, or nothing."""
    if rng.random() >= self.probability:
      return []
    rows, columns = sides(size)
    for _ in range(_TRIES):
      area, aspect, row, column = rng.random(4).tolist()
      area = rows * columns * (_LEAST_AREA + (self.most_area - _LEAST_AREA) * area)
      aspect = math.exp(_ASPECTS[0] + (_ASPECTS[1] - _ASPECTS[0]) * aspect)
      height = round(math.sqrt(area * aspect))
      width = round(math.sqrt(area / aspect))
      if 0 < height < rows and 0 < width < columns:
        top = int((rows - height + 1) * row)
        left = int((columns - width + 1) * column)
        noise = np.frombuffer(rng.bytes(height * width * 3), np.uint8)
        patch = noise.reshape(height, width, 3)
        return [functools.partial(o.replace, row=top, column=left, patch=patch)]
    return []
