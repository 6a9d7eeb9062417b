r"""Small models on halves of Fashion-MNIST's classes: pre-training, then fine-tuning.

  python -m vit_jax.main --config=configs/fashion_halves.py:first,MODEL --workdir=DIR
  python -m vit_jax.main --config=configs/fashion_halves.py:second,MODEL --config.init_from=DIR

first: 800 steps on 30,000 images of the classes 0 to 4, with the settings of
configs/vit_fashion.py:plain but no moving average, and a 5-shot probe on the classes 5 to 9: the
mean of five draws, 2,000 test images.
second: 200 steps on 1,000 images of the classes 5 to 9, scored on their 5,000 test images. As in
Table 4, but for the size: SGD with momentum 0.9, a warm-up of a fifth of the run, cosine decay,
clipping to a global norm of 1, learning rate 0.03, the largest of the paper's grid.
MODEL: ViT-WIDTH/PATCH with 4 blocks; ResNet-N with N units, from 32 channels on; Hybrid-WIDTH,
such a ViT on the map of a ResNet of one stage. docs/data.md has the commands that make the halves.
"""

import dataclasses

from vit_jax.config import (
  Checkpoint,
  Config,
  ConfigError,
  Data,
  Dataset,
  Duration,
  Model,
  Schedule,
  to_config_dict,
)
from vit_jax.evaluation.classification import Classification
from vit_jax.evaluation.few_shot import FewShot
from vit_jax.learning.optimizers.adam import Adam
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes import choice


def vit(width: int, name: str, **fields) -> Model:
  """A ViT of 4 blocks with heads of 32 dimensions."""
  shape = dict(depth=4, width=width, mlp_dim=2 * width, heads=width // 32)
  return Model(name=name, num_classes=5, **shape, **fields)


def resnet(*stages: int) -> Model:
  """A ResNet with as many units in each stage."""
  return Model(name="R26x1", num_classes=5, width=32, stages=stages)


MODELS = {
  "ViT-64/7": vit(64, "ViT-Ti/7"),
  "ViT-96/7": vit(96, "ViT-Ti/7"),
  "ViT-64/4": vit(64, "ViT-Ti/4"),
  "ViT-96/4": vit(96, "ViT-Ti/4"),
  "ResNet-2": resnet(1, 1),
  "ResNet-3": resnet(1, 1, 1),
  "ResNet-6": resnet(2, 2, 2),
  "Hybrid-64": vit(64, "R26+ViT-Ti/16", stages=(1,)),
  "Hybrid-96": vit(96, "R26+ViT-Ti/16", stages=(1,)),
}


def half(name: str, split: str, **fields) -> Dataset:
  """A split of half of the classes."""
  return Dataset(f"tfds:fashion_{name}", split, **fields)


def run(model: Model, *, steps: int, warmup: int, learning_rate: float, **fields) -> Config:
  """What both halves share."""
  return Config(
    batch_size=64,
    accumulation=1,
    duration=Duration(steps=steps),
    evaluate_every=Duration(steps=steps),
    log_every=Duration(steps=50),
    model=dataclasses.replace(model, compute_dtype="float32"),
    schedule=Schedule(learning_rate=learning_rate, warmup=Duration(steps=warmup)),
    checkpoint=Checkpoint(every=Duration(steps=steps)),
    **fields,
  )


def images(train: Dataset, test: Dataset, **others: FewShot) -> dict:
  """Whole images of 28 x 28 pixels, flipped at random; `others` are evaluations by name."""
  whole = dict(crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0))
  return dict(
    data=Data(train=train, image_size=28, flip=True, **whole),
    evaluate={"test": Classification(**vars(test)), **others},
  )


def first(model: Model) -> Config:
  """Pre-training."""
  probe = FewShot(half("second", "train"), half("second", "test", subset=2000), shots=(5,), seeds=5)
  return run(
    model,
    steps=800,
    warmup=80,
    learning_rate=1.5e-3,
    optimizer=Adam(weight_decay=0.1, clip_norm=1.0, ema=0.0),
    **images(half("first", "train"), half("first", "test", subset=1000), second=probe),
  )


def second(model: Model) -> Config:
  """Fine-tuning."""
  return run(
    model,
    steps=200,
    warmup=40,
    learning_rate=0.03,
    optimizer=SGD(momentum=0.9, clip_norm=1.0, ema=0.0),
    **images(half("second", "train", subset=1000), half("second", "test")),
    new_head=True,
  )


def get_config(argument="first,ViT-64/7"):
  """One model on one half."""
  name, comma, model = argument.partition(",")
  if not comma:
    raise ConfigError(f"The recipe's argument {argument!r} is not HALF,MODEL.")
  halves = {"first": first, "second": second}
  return to_config_dict(halves[choice(name, *halves)](MODELS[choice(model, *MODELS)]))
