"""The settings that all recipes share that train on ImageNet from scratch, or fine-tune on it."""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Duration
from vit_jax.evaluation.classification import Classification
from vit_jax.recipes.pretraining import DATASETS

CLASSES = DATASETS["imagenet"].num_classes


def on_imagenet(*, split: str = "train", side: int = 224, crop: float = 0.875, **groups) -> Config:
  """A run on ImageNet that scores the validation set after every fifth epoch.

  Args:
    split: of the training data.
    side: of the images, pixels.
    crop: which part of the smaller side of a scored image is seen; the centre is taken. 0.875 (256
      and 224 pixels) in the sources of all recipes but DeiT III, which has 1.
    **groups: of `Config`; `data` is completed.
  """
  images = DATASETS["imagenet"]
  data = dataclasses.replace(
    groups.pop("data", Data()),
    dataset="imagenet",
    train=dataclasses.replace(images.train, split=split),
    image_size=side,
    flip=True,
    evaluate_resize=round(side / crop),
  )
  return Config(
    data=data,
    log_every=Duration(steps=50),
    evaluate_every=Duration(epochs=5),
    evaluate={"val": Classification(**vars(images.validation))},
    checkpoint=Checkpoint(every=Duration(epochs=1)),
    **groups,
  )
