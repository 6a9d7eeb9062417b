"""RandAugment in the form of timm that DeiT and fine-tuning of masked models use."""

import dataclasses
import functools
import statistics
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import Augmentation, Size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.data.augmentation import operations as o

_NORMAL = statistics.NormalDist()
_LEAST = 2.0**-54  # probability; a draw of 0 would be infinitely far from the mean


@dataclasses.dataclass(frozen=True)
class RandAugmentTimm(Augmentation):
  """timm's `rand-m9-mstd0.5-inc1`: 15 operations that all grow stronger with the magnitude.

  Each of the drawn operations is done with a probability, at a magnitude of its own: normally
  distributed about `magnitude`, and cut off at 0 and 10.

  Source: timm's `auto_augment.py`, with bicubic interpolation as in DeiT. Pixels from outside the
  image are middle grey, as in timm with a mean of 0.5; recipes of PyTorch give it ImageNet's mean.
  """

  kind: str = name_of_kind("rand_augment_timm", "RandAugment, timm's rand-m9-mstd0.5-inc1")
  layers: int = setting(2, "operations that are drawn for each image", low=1, high=16)
  magnitude: float = setting(9.0, "mean strength of operations", low=0.0, high=10.0)
  deviation: float = setting(0.5, "standard deviation of the strength", low=0.0, high=10.0)
  probability: float = setting(0.5, "probability that a drawn operation is done", low=0.0, high=1.0)

  def draw(self, rng: np.random.Generator, size: Size) -> Sequence[Callable]:
    """The operations of an image."""
    drawn = [self._one(rng, size) for _ in range(self.layers)]
    return [operation for operation, done in drawn if done]

  def _one(self, rng, size):
    number, sign, quantile, chance = rng.random(4)
    deviation = self.deviation * _NORMAL.inv_cdf(max(quantile, _LEAST))
    magnitude = min(max(0.0, self.magnitude + deviation), 10.0)
    sign = -1 if sign < 0.5 else 1
    choices = operations(magnitude, sign, size)
    return choices[int(len(choices) * number)], chance < self.probability


def operations(magnitude: float, sign: int, size: Size) -> Sequence[Callable]:
  """The operations at a magnitude, in timm's order.

  Args:
    magnitude: from 0, which changes little, to 10.
    sign: -1 or 1: the direction of movements, and whether factors are below or above 1.
    size: of the image, pixels.
  """
  height, width = sides(size)
  share = magnitude / 10
  factor = max(0.1, 1 + sign * 0.9 * share)
  of = functools.partial
  return (
    of(o.auto_contrast),
    of(o.equalize),
    of(o.invert),
    of(o.rotate, degrees=sign * 30 * share, resample=o.BICUBIC),
    of(o.posterize, bits=4 - int(4 * share)),
    of(o.solarize, threshold=256 - int(256 * share)),
    of(o.solarize_add, addition=int(110 * share)),
    of(o.color, factor=factor),
    of(o.contrast, factor=factor),
    of(o.brightness, factor=factor),
    of(o.sharpness, factor=factor),
    of(o.shear_x, shift=sign * 0.3 * share, resample=o.BICUBIC),
    of(o.shear_y, shift=sign * 0.3 * share, resample=o.BICUBIC),
    of(o.translate_x, distance=sign * 0.45 * share * width, resample=o.BICUBIC),
    of(o.translate_y, distance=sign * 0.45 * share * height, resample=o.BICUBIC),
  )
