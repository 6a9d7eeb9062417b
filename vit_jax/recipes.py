"""What recipes share: pre-training (Table 3), fine-tuning (Table 4), evaluation; Section 4.1."""

import dataclasses
import os
import runpy

from vit_jax.config import (
  AUTO,
  Checkpoint,
  Config,
  ConfigError,
  Data,
  Dataset,
  Duration,
  FewShot,
  Loss,
  Model,
  Nearest,
  Optimizer,
  Schedule,
  from_dict,
  missing_recipe,
)

# JFT-300M is not public and ImageNet-21k is not in TFDS: their sources are for the user to give.
DATASETS = {
  "jft": dict(
    num_classes=18_291,
    multi_label=True,
    clip_norm=0.0,
    train=Dataset(),
    validation=Dataset(),
    examples=303_000_000,
  ),
  "imagenet21k": dict(
    num_classes=21_843,
    multi_label=True,
    clip_norm=0.0,
    train=Dataset(),
    validation=Dataset(),
    examples=12_400_000,
  ),
  "imagenet": dict(
    num_classes=1000,
    multi_label=False,
    clip_norm=1.0,
    train=Dataset(source="tfds:imagenet2012", split="train"),
    validation=Dataset(source="tfds:imagenet2012", split="validation"),
    examples=1_281_167,
  ),
}

# The paper's on-the-fly measure; it has no sources until they are given, since it needs ImageNet.
IN_LOOP_PROBE = FewShot(
  train=Dataset(split="train"), test=Dataset(split="validation"), shots=(5,), seeds=1
)


def pretrain(
  model: str,
  dataset: str,
  *,
  epochs: float,
  learning_rate: float,
  decay: str,
  weight_decay: float,
  dropout: float,
) -> Config:
  """One row of Table 3; the arguments are its columns.

  Adam (0.9, 0.999), batch 4096, warm-up of 10,000 steps, 224 px; where there is a Transformer, a
  representation layer before the head (a ResNet has none); global-norm
  clipping at 1 on ImageNet only. Not in the paper, but stated by its authors: the sigmoid loss on
  the two large datasets with the head's bias starting at -10, and 1e-5 as the end of the linear
  schedule.
  """
  data = DATASETS[dataset]
  multi_label = data["multi_label"]
  return Config(
    batch_size=4096,
    duration=Duration(epochs=epochs),
    evaluate_every=Duration(steps=5000),
    model=Model(
      name=model,
      num_classes=data["num_classes"],
      representation_layer="ViT-" in model,
      dropout=dropout,
      head_bias=-10.0 if multi_label else 0.0,
      compute_dtype="bfloat16",
    ),
    loss=Loss(kind="sigmoid" if multi_label else "softmax"),
    optimizer=Optimizer(weight_decay=weight_decay, clip_norm=data["clip_norm"]),
    schedule=Schedule(
      learning_rate=learning_rate,
      warmup=Duration(steps=10_000),
      decay=decay,
      end_learning_rate=1e-5 if decay == "linear" else 0.0,
    ),
    data=Data(train=data["train"], evaluate={"val": data["validation"]}),
    few_shot={"imagenet": IN_LOOP_PROBE},
    checkpoint=Checkpoint(every=Duration(steps=1000), keep_every=Duration(steps=50_000)),
  )


@dataclasses.dataclass(frozen=True)
class Task:
  """One row of Table 4.

  Attributes:
    source: of all splits.
    test: the split that is scored.
    num_classes: of the head.
    steps: of the whole run.
    learning_rates: the paper's grid.
    development: per cent of the training split that is held out while choosing.
  """

  source: str
  test: str
  num_classes: int
  steps: int
  learning_rates: tuple[float, ...]
  development: int


SMALL_GRID = (0.001, 0.003, 0.01, 0.03)
TASKS = {
  "imagenet": Task("tfds:imagenet2012", "validation", 1000, 20_000, (0.003, 0.01, 0.03, 0.06), 1),
  "cifar100": Task("tfds:cifar100", "test", 100, 10_000, SMALL_GRID, 2),
  "cifar10": Task("tfds:cifar10", "test", 10, 10_000, SMALL_GRID, 2),
  "pets": Task("tfds:oxford_iiit_pet", "test", 37, 500, SMALL_GRID, 10),
  "flowers": Task("tfds:oxford_flowers102", "test", 102, 500, SMALL_GRID, 10),
}
# Table 2: ImageNet at a higher resolution, with Polyak averaging.
TABLE_2 = {"ViT-L/16": 512, "ViT-H/14": 518}


def finetune(model: str, task: str, *, part: str) -> Config:
  """One row of Table 4 for one model (Section 3.2, Appendix B.1.1).

  SGD with momentum 0.9, batch 512, cosine decay without warm-up, no weight decay, global-norm
  clipping at 1, 384 px (378 where patches are of 14 pixels); a linear head, which starts at zero,
  in place of the whole head of pre-training. ViT-L/16 and ViT-H/14 on ImageNet as in Table 2. The
  learning rate is the one of the grid that all tasks share, 0.01: the paper chooses it for each
  task and model.

  Args:
    model: a name of the paper's.
    task: of `TASKS`.
    part: "all" trains on the whole training split and scores the test split; "development" keeps
      the paper's percentage of the training split back and scores that.
  """
  row = TASKS[task]
  large = TABLE_2.get(model) if task == "imagenet" else None
  # TFDS rounds to whole examples alike at the end of one part and the beginning of the other.
  cut = f"{100 - row.development}%"
  train, scored = {
    "all": ("train", row.test),
    "development": (f"train[:{cut}]", f"train[{cut}:]"),
  }[part]
  every = Duration(steps=row.steps // 10)
  return Config(
    batch_size=512,
    duration=Duration(steps=row.steps),
    evaluate_every=every,
    new_head=True,
    model=Model(
      name=model,
      num_classes=row.num_classes,
      compute_dtype=AUTO,
    ),
    optimizer=Optimizer(kind="sgd", momentum=0.9, clip_norm=1.0, ema=0.9999 if large else 0.0),
    schedule=Schedule(learning_rate=0.01, decay="cosine"),
    data=Data(
      train=Dataset(source=row.source, split=train),
      evaluate={"test" if part == "all" else "development": Dataset(row.source, scored)},
      image_size=large or largest_side(model, 384),
    ),
    checkpoint=Checkpoint(every=every),
  )


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


def largest_side(model: str, most: int) -> int:
  """The largest side of square images, up to `most` pixels, that the model's patches tile.

  Raises:
    ConfigError: there is no such model.
  """
  from vit_jax import models  # slow: what only looks at the tables goes without

  try:
    module = models.create(model)
  except ValueError as error:
    raise ConfigError(f"The recipe's model cannot be used: {error}") from error
  stride = 1 if isinstance(module, models.ResNet) else module.stride()
  return most // stride * stride


def examples_of(config: Config) -> int | None:
  """Training images of the dataset with as many classes as the head; None: none of the three."""
  known = {data["num_classes"]: data["examples"] for data in DATASETS.values()}
  return known.get(config.model.num_classes)


def choice(argument: str, *known: int | str) -> int | str:
  """What stands after the colon of --config=configs/NAME.py:ARG, as the one of `known` it names.

  Raises:
    ConfigError: it is none of `known`.
  """
  named = {str(value): value for value in known}
  if argument not in named:
    raise ConfigError(f"The recipe's argument {argument!r} is none of {', '.join(named)}.")
  return named[argument]


def load(recipe: str) -> Config:
  """The config of a recipe as the command line names it, configs/NAME.py or configs/NAME.py:ARG.

  Raises:
    ConfigError: there is no such recipe, or it cannot be run with this argument.
  """
  path, _, argument = recipe.partition(":")
  if not os.path.exists(path):
    raise ConfigError(missing_recipe(path))
  try:
    get_config = runpy.run_path(path)["get_config"]
    return from_dict(get_config(*filter(None, [argument])).to_dict())
  except ConfigError:
    raise
  except Exception as error:  # a recipe is a program of the user's: anything can go wrong in it
    raise ConfigError(f"{recipe} is no recipe: {type(error).__name__}: {error}.") from error
