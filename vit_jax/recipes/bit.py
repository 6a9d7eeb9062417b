"""Fine-tuning by the BiT-HyperRule."""

import dataclasses

from vit_jax.config import (
  AUTO,
  Checkpoint,
  Config,
  Data,
  Dataset,
  Duration,
  Model,
  Optimizer,
  Schedule,
)
from vit_jax.recipes.finetuning import Task


@dataclasses.dataclass(frozen=True)
class Length:
  """How long the BiT-HyperRule trains on datasets of some size; all but `examples` in steps.

  Attributes:
    examples: the rule is for fewer training images.
    warmup: end of the warm-up.
    drops: where the learning rate is divided by ten.
    total: end of the run.
  """

  examples: float
  warmup: int
  drops: tuple[int, ...]
  total: int


LENGTHS = (
  Length(20_000, 100, (200, 300, 400), 500),
  Length(500_000, 500, (3000, 6000, 9000), 10_000),
  Length(float("inf"), 500, (6000, 12_000, 18_000), 20_000),
)

MIXUP_FROM = 20_000  # training images

# Pixels that training images are resized to, and side of the crop, by the size of the images: an
# area below 96 x 96 pixels, and any other.
RESOLUTIONS = {"small": (160, 128), "large": (512, 480)}

# Training images of the tasks of Table 4, and their size.
TASK_IMAGES = {
  "imagenet": (1_281_167, "large"),
  "cifar100": (50_000, "small"),
  "cifar10": (50_000, "small"),
  "pets": (3680, "large"),
  "flowers": (1020, "large"),
}


def hyperrule(model: str, *, examples: int, images: str, task: Task | None) -> Config:
  """Fine-tuning by the BiT-HyperRule, in which nothing is searched for.

  SGD with momentum 0.9, batch 512, learning rate 0.003 after a linear warm-up, divided by ten at
  three times of the run; length and MixUp (alpha 0.1) by the number of training images, resolution
  by their size; no weight decay; a linear head that starts at zero. Evaluation resizes straight to
  the size of the crops.

  Args:
    model: a name of the paper's.
    examples: number of training images.
    images: "small" (an area below 96 x 96 pixels) or "large".
    task: where the images come from; None: the user's own.

  Source: Kolesnikov et al., "Big Transfer (BiT): General Visual Representation Learning", 2020,
  Section 3.3; the ResNets of Dosovitskiy et al. are BiT's.
  """
  length = next(row for row in LENGTHS if examples < row.examples)
  resize, size = RESOLUTIONS[images]
  every = Duration(steps=length.total // 10)
  return Config(
    batch_size=512,
    duration=Duration(steps=length.total),
    evaluate_every=every,
    new_head=True,
    model=Model(
      name=model,
      num_classes=task.num_classes if task else Model().num_classes,
      compute_dtype=AUTO,
    ),
    optimizer=Optimizer(kind="sgd", momentum=0.9),
    schedule=Schedule(
      learning_rate=0.003,
      warmup=Duration(steps=length.warmup),
      decay="steps",
      drops=tuple(step / length.total for step in length.drops),
    ),
    data=Data(
      train=Dataset(task.source, "train") if task else Dataset(),
      evaluate={"test": Dataset(task.source, task.test) if task else Dataset()},
      image_size=size,
      train_resize=resize,
      mixup=0.1 if examples >= MIXUP_FROM else 0.0,
    ),
    checkpoint=Checkpoint(every=every),
  )
