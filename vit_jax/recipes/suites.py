"""Suites of evaluations: ImageNet and its variants, few-shot probes, nearest neighbours."""

import dataclasses

from vit_jax.config import Config, Data, Dataset, FewShot, Model, Nearest
from vit_jax.recipes.sizes import largest_side

IMAGENET = Dataset("tfds:imagenet2012", "validation")

# ObjectNet's smaller side is resized to 512 pixels for models that see 480.
WIDER = 512 / 480

SETS = {
  "imagenet": IMAGENET,
  "real": Dataset("tfds:imagenet2012_real", "validation", label_key="real_label"),
  "v2": Dataset("tfds:imagenet_v2/matched-frequency", "test"),
  "a": Dataset("tfds:imagenet_a", "test", classes=200),
  "r": Dataset("tfds:imagenet_r", "test", classes=200),
  "sketch": Dataset("tfds:imagenet_sketch", "test"),
  "objectnet": Dataset(resize=WIDER),
}

# Suites of which not the weights say the size of images, pixels.
PUBLISHED_SIDES = {"objectnet": 480, "few_shot": 224, "knn": 224}

# Suite -> the sets that the head is scored on.
SUITES = {name: (name,) for name in SETS} | {
  "variants": tuple(SETS),
  "few_shot": (),
  "knn": (),
  "own": ("own",),
}


def evaluation(suite: str, model: str = "") -> Config:
  """A suite of configs/evaluate.py, for one model or for any.

  Images are prepared as for the weights' own evaluation, but for suites with a published size: the
  nearest below that the model's patches tile. Of ObjectNet's images the smaller side is resized, to
  as many times the image size as is published, and the centre cut out.

  Raises:
    ConfigError: there is no such model.
  """
  side = PUBLISHED_SIDES.get(suite, 0)
  if model:
    side = largest_side(model, side)
  sets = {name: SETS.get(name, Dataset()) for name in SUITES[suite]}
  train, test = Dataset("tfds:imagenet2012", "train"), IMAGENET
  tenth = dataclasses.replace(train, split="train[:10%]")
  return Config(
    batch_size=256,
    model=Model(name=model),
    data=Data(evaluate=sets, image_size=side),
    few_shot={"imagenet": FewShot(train, test)} if suite == "few_shot" else {},
    nearest={"imagenet": Nearest(tenth, test)} if suite == "knn" else {},
  )
