"""What recipes that train on ImageNet from scratch, or fine-tune on it, have in common."""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Duration
from vit_jax.evaluation.classification import Classification
from vit_jax.recipes.pretraining import DATASETS

CLASSES = DATASETS["imagenet"].num_classes


def on_imagenet(*, split: str = "train", side: int = 224, **groups) -> Config:
  """A run on ImageNet that scores the validation set after every fifth epoch.

  Scored images are resized so that the smaller side is side / 0.875 pixels, of which the centre is
  taken, as all sources of these recipes do: 256 and 224.

  Args:
    split: of the training data.
    side: of the images, pixels.
    **groups: of `Config`; `data` is completed.
  """
  images = DATASETS["imagenet"]
  data = dataclasses.replace(
    groups.pop("data", Data()),
    dataset="imagenet",
    train=dataclasses.replace(images.train, split=split),
    image_size=side,
    evaluate_resize=round(side / 0.875),
  )
  return Config(
    data=data,
    evaluate_every=Duration(epochs=5),
    evaluate={"val": Classification(**vars(images.validation))},
    checkpoint=Checkpoint(every=Duration(epochs=1)),
    **groups,
  )
