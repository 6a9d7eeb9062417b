"""What suits a number of training images: model, batch, length, learning rate, crops."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Scale:
  """Settings for up to some number of training images.

  Attributes:
    most: training images.
    model: the beginning of the model's name, before its patch.
    shape: where the model is otherwise than its name says.
    batch_size: images a step.
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
