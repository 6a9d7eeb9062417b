"""Defaults by the number of training images: model, batch, length, learning rate, crops."""

import dataclasses
import math
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Scale:
  """Settings for up to some number of training images.

  Attributes:
    most: training images.
    model: the beginning of the model's name, before its patch.
    shape: settings in which the model differs from its name.
    batch_size: images per step.
    epochs: passes over the images.
    learning_rate: the highest.
    crop: smallest fraction of an image's area in a training crop.
  """

  most: float
  model: str
  shape: Mapping[str, int | str]
  batch_size: int
  epochs: int
  learning_rate: float
  crop: float


DIGITS = dict(depth=4, width=64, mlp_dim=256, heads=4)  # as in configs/vit_digits.py
FASHION = dict(depth=4, width=96, mlp_dim=192, heads=3)  # as in configs/vit_fashion.py:plain
# With few images fixed positions help (docs/from-scratch.md).
FEW = DIGITS | dict(positions="sincos2d")
SCALES = (
  Scale(3000, "ViT-Ti", FEW, 64, 120, 3e-3, 0.5),
  Scale(10_000, "ViT-Ti", DIGITS, 64, 120, 3e-3, 0.5),
  Scale(100_000, "ViT-Ti", FASHION, 64, 20, 1.5e-3, 0.8),
  Scale(500_000, "ViT-Ti", {}, 256, 60, 1e-3, 0.3),
  Scale(float("inf"), "ViT-S", {}, 1024, 90, 1e-3, 0.05),
)


@dataclasses.dataclass(frozen=True)
class Length:
  """The length of fine-tuning by the BiT-HyperRule for datasets of one size; all times in steps.

  Attributes:
    examples: the row is for datasets with fewer training images than this.
    drops: steps at which the learning rate is divided by ten.
    total: end of the run.
  """

  examples: float
  drops: tuple[int, ...]
  total: int


# Their warm-ups of 100, 500 and 500 steps are those of all fine-tuning.
LENGTHS = (
  Length(20_000, (200, 300, 400), 500),
  Length(500_000, (3000, 6000, 9000), 10_000),
  Length(float("inf"), (6000, 12_000, 18_000), 20_000),
)
AVERAGED = 500  # steps of a run that has a moving average


def scale_of(images: int) -> Scale:
  """The settings for this number of training images."""
  return next(row for row in SCALES if images <= row.most)


def length_of(images: int) -> Length:
  """The length of fine-tuning on this number of images."""
  return next(row for row in LENGTHS if images < row.examples)


def batch_of(images: int, most: int) -> int:
  """The largest power of two that is at most `most` and a quarter of the images."""
  return min(most, 1 << max(images // 4, 1).bit_length() - 1)


def patch_of(side: int) -> int:
  """The side of a patch for images of this side, in pixels, so that there are some 16 to 200."""
  if side <= 40:
    return 4
  if side <= 96:
    return 8
  return 16


def patch_for(size: tuple[int, int]) -> int:
  """The patch nearest to `patch_of` that tiles images of this size, from half to twice of it.

  Args:
    size: height and width, pixels.

  Returns:
    The side of the patch, pixels; that of `patch_of` if none tiles them.
  """
  usual = patch_of(min(size))
  tiling = [side for side in range(usual // 2, 2 * usual + 1) if math.gcd(*size) % side == 0]
  return min(tiling, key=lambda side: abs(side - usual), default=usual)


def warmup_of(steps: int) -> int:
  """The steps of warm-up for fine-tuning: 500, or a fifth of fewer than 2,500 steps.

  The paper names none. The released code has 500 steps; its successor big_vision has 100 for Pets
  and Flowers, which have 500 steps in all.
  """
  return max(1, min(500, steps // 5))


def average_over(steps: float) -> float:
  """The factor of a moving average over 50 steps, or a fiftieth of a long run; 0: none.

  After ten such lengths the start has practically no weight.
  """
  if steps < AVERAGED:
    return 0.0
  return round(1 - 1 / max(50, steps / 50), 6)


def in_words(images: int) -> str:
  """A number of training images, as the origin of a setting."""
  return f"{images:,} training images"
