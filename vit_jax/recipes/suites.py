"""Suites of evaluations: ImageNet and its variants, few-shot probes, nearest neighbours."""

import dataclasses

from vit_jax.config import Config, Data, Dataset, EvaluationSet, FewShot, Model, Nearest
from vit_jax.recipes.sizes import largest_side

# For models with 480 x 480 pixels, ObjectNet's images are resized to a smaller side of 512.
WIDER = 512 / 480

SETS = {
  "imagenet": EvaluationSet("tfds:imagenet2012", "validation"),
  "real": EvaluationSet("tfds:imagenet2012_real", "validation", label_key="real_label"),
  "v2": EvaluationSet("tfds:imagenet_v2/matched-frequency", "test"),
  "a": EvaluationSet("tfds:imagenet_a", "test", classes=200),
  "r": EvaluationSet("tfds:imagenet_r", "test", classes=200),
  "sketch": EvaluationSet("tfds:imagenet_sketch", "test"),
  "objectnet": EvaluationSet(resize=WIDER),
}

# Suites with a fixed image size, pixels; the others use the size of the weights.
PUBLISHED_SIDES = {"objectnet": 480, "few_shot": 224, "knn": 224}

# Suite -> evaluation sets of the head.
SUITES = {name: (name,) for name in SETS} | {
  "variants": tuple(SETS),
  "few_shot": (),
  "knn": (),
  "own": ("own",),
}


def evaluation(suite: str, model: str = "") -> Config:
  """A suite of configs/evaluate.py, for one model or for any.

  Images are prepared as the weights expect. Suites with a published size use the largest size up to
  it that fits the model's patches. For ObjectNet, the smaller side is resized to 512/480 of the
  image size, as published, and the centre is cropped.

  Raises:
    ConfigError: there is no such model.
  """
  side = PUBLISHED_SIDES.get(suite, 0)
  if model:
    side = largest_side(model, side)
  sets = {name: SETS.get(name, EvaluationSet()) for name in SUITES[suite]}
  train = Dataset("tfds:imagenet2012", "train")
  test = Dataset("tfds:imagenet2012", "validation")
  tenth = dataclasses.replace(train, split="train[:10%]")
  return Config(
    batch_size=256,
    model=Model(name=model),
    data=Data(evaluate=sets, image_size=side),
    few_shot={"imagenet": FewShot(train, test)} if suite == "few_shot" else {},
    nearest={"imagenet": Nearest(tenth, test)} if suite == "knn" else {},
  )
