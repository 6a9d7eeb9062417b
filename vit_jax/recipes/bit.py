"""ResNets as in BiT: fine-tuning by the BiT-HyperRule, and pre-training with SGD (Table 7)."""

import dataclasses

from vit_jax import registry
from vit_jax.config import Config, ConfigError, Data, Dataset, Duration, Model, Schedule
from vit_jax.config.scales import length_of
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.classification import Settings
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.finetuning import TASKS, sets
from vit_jax.recipes.following import Replace, unchanged, with_rate_of_batch
from vit_jax.recipes.loading import module_of
from vit_jax.recipes.pretraining import pretrain

MIXUP_FROM = 20_000  # training images

# (side after resizing, side of the crop) of training images, in pixels. "small" images have an area
# below 96 x 96 pixels, and all others are "large".
RESOLUTIONS = {"small": (160, 128), "large": (512, 480)}

# Number of training images of each task of Table 4, and their size.
TASK_IMAGES = {
  "imagenet": (1_281_167, "large"),
  "cifar100": (50_000, "small"),
  "cifar10": (50_000, "small"),
  "pets": (3680, "large"),
  "flowers": (1020, "large"),
}


def of_task(model: str, task: str, *, part: str, real: bool) -> Config:
  """The BiT-HyperRule on a task of Table 4; `part` and `real` as for `finetune`.

  The rule uses the size of the whole training set, even if some of it is held back.
  """
  examples, images = TASK_IMAGES[task]
  train, scored = sets(task, part=part, real=real)
  base = hyperrule(model, examples=examples, images=images)
  return dataclasses.replace(
    base,
    model=dataclasses.replace(base.model, num_classes=TASKS[task].num_classes),
    data=dataclasses.replace(base.data, train=train),
    evaluate=scored,
  )


def hyperrule(model: str, *, examples: int, images: str) -> Config:
  """Fine-tuning by the BiT-HyperRule, which needs no search for settings.

  SGD with momentum 0.9, batch 512, no weight decay; a linear warm-up to a learning rate of 0.003,
  which is divided by ten three times; a linear head that starts at zero. The number of training
  images decides the length and whether MixUp (alpha 0.1) is used; their size decides the
  resolution. Evaluation resizes straight to the size of the crops.

  Args:
    model: a model name from the paper.
    examples: number of training images.
    images: "small" (an area below 96 x 96 pixels) or "large".

  Source: Kolesnikov et al., "Big Transfer (BiT): General Visual Representation Learning", 2020,
  Section 3.3; the ResNets of Dosovitskiy et al. are BiT's.
  """
  length = length_of(examples)
  resize, size = RESOLUTIONS[images]
  mixup = 0.0
  if examples >= MIXUP_FROM:
    mixup = 0.1
  return Config(
    batch_size=512,
    duration=Duration(steps=length.total),
    new_head=True,
    model=Model(name=model),
    objective=Settings(mixup=mixup),
    optimizer=SGD(momentum=0.9, ema=0.0),
    schedule=Schedule(
      learning_rate=0.003,
      decay="steps",
      drops=tuple(step / length.total for step in length.drops),
    ),
    data=Data(train=Dataset(), image_size=size, train_resize=resize, flip=True, evaluate_resize=0),
    evaluate={"test": Classification()},
  )


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

# BiT trains 40 epochs on JFT. The ResNets of Table 7 are trained for 7 with Adam; we take 7 too.
LENGTHS_OF_BIT = {
  "jft": PretrainingLength(7, (10 / 40, 23 / 40, 30 / 40, 37 / 40)),
  "imagenet21k": NINETY,
  "imagenet": NINETY,
}

LEARNING_RATE = 0.03  # for 256 images


def pretrain_as_bit(model: str, dataset: str, replace: Replace = unchanged) -> Config:
  """A ResNet on a key of `LENGTHS_OF_BIT`, with the dataset's loss and images as in `pretrain`.

  SGD with momentum 0.9 and L2 of 1e-4, no clipping, 5,000 steps of warm-up.

  Source: Kolesnikov et al., "Big Transfer (BiT): General Visual Representation Learning", 2020,
  Sections 3.2 and 4.1; Appendix D.1 of Dosovitskiy et al. takes its settings from there.
  """
  length = LENGTHS_OF_BIT[dataset]
  base = pretrain(model, dataset, epochs=length.epochs, learning_rate=0.0, resnet=True)
  recipe = dataclasses.replace(
    base,
    optimizer=SGD(momentum=0.9, weight_decay=1e-4, decay_kind="coupled", ema=0.0),
    schedule=Schedule(warmup=Duration(steps=5000), decay="steps", drops=length.drops),
  )
  return with_rate_of_batch(recipe, LEARNING_RATE, replace)


def is_resnet(model: str) -> bool:
  """Whether the model is a ResNet as BiT has them.

  Raises:
    ConfigError: there is no such model.
  """
  return type(module_of(model)) is registry.FAMILIES["resnet"].module


def resnet(name: str) -> str:
  """The name, checked to be that of a ResNet.

  Raises:
    ConfigError: there is no such model, or it is no ResNet.
  """
  if not is_resnet(name):
    raise ConfigError(f"The recipe's model {name!r} is no ResNet; give one such as R50x1.")
  return name
