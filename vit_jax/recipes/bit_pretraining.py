"""Pre-training of ResNets with SGD, as in BiT (Table 7)."""

import dataclasses

from vit_jax.config import Config, ConfigError, Duration, Schedule
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.pretraining import pretrain


@dataclasses.dataclass(frozen=True)
class PretrainingLength:
  """The length of pre-training on a dataset.

  Attributes:
    epochs: of the run.
    drops: fractions of the run at which the learning rate is divided by ten.
  """

  epochs: int
  drops: tuple[float, ...]


NINETY = PretrainingLength(90, (30 / 90, 60 / 90, 80 / 90))

# BiT trains 40 epochs on JFT. The ResNets of Table 7 are trained for 7 with Adam, and so here.
LENGTHS_OF_BIT = {
  "jft": PretrainingLength(7, (10 / 40, 23 / 40, 30 / 40, 37 / 40)),
  "imagenet21k": NINETY,
  "imagenet": NINETY,
}

BATCH, LEARNING_RATE = 256, 0.03  # the rate grows with the batch


def pretrain_as_bit(model: str, dataset: str) -> Config:
  """A ResNet on a key of `LENGTHS_OF_BIT`, with the dataset's loss and images as in `pretrain`.

  SGD with momentum 0.9 and L2 of 1e-4, no clipping, 5,000 steps of warm-up.

  Source: Kolesnikov et al., "Big Transfer (BiT): General Visual Representation Learning", 2020,
  Sections 3.2 and 4.1; Appendix D.1 of Dosovitskiy et al. takes its settings from there.
  """
  length = LENGTHS_OF_BIT[dataset]
  base = pretrain(model, dataset, epochs=length.epochs, learning_rate=0.0)
  return dataclasses.replace(
    base,
    optimizer=SGD(momentum=0.9, weight_decay=1e-4, decay_kind="coupled"),
    schedule=Schedule(
      learning_rate=LEARNING_RATE * base.batch_size / BATCH,
      warmup=Duration(steps=5000),
      decay="steps",
      drops=length.drops,
    ),
  )


def resnet(name: str) -> str:
  """The name, checked to be that of a ResNet.

  Raises:
    ConfigError: there is no such model, or it is none.
  """
  from vit_jax import models, registry  # slow, and users of the tables alone do not need it

  try:
    module = models.create(name)
  except ValueError as error:
    raise ConfigError(f"The recipe's model cannot be used: {error}") from error
  if models.family_of(module) is not registry.FAMILIES["resnet"]:
    raise ConfigError(f"The recipe's model {name!r} is no ResNet; give one such as R50x1.")
  return name
