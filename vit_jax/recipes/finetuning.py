"""Fine-tuning: the rows of Table 4 and the sizes of Table 2."""

import dataclasses

from vit_jax.config import (
  AUTO,
  Config,
  ConfigError,
  Data,
  Dataset,
  Duration,
  Model,
  Schedule,
)
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.following import Replace, fraction, unchanged
from vit_jax.recipes.loading import largest_side
from vit_jax.recipes.suites import SETS


@dataclasses.dataclass(frozen=True)
class Task:
  """One row of Table 4.

  Attributes:
    source: data source of all splits.
    test: split used for the final score.
    num_classes: outputs of the head.
    steps: length of the run.
    learning_rates: the paper's grid.
    development: percentage of the training split that is held out for choosing settings.
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

# Transfer as in BiT, by Section 4.1: images are resized to a square of 448 pixels for crops of 384,
# and in that proportion for other sizes.
RESIZE_RATIO = 448 / 384

# How training images are cropped: as in the paper, or as in the code that its authors released.
CROPS = {"paper": RESIZE_RATIO, "inception": 0.0}

# Table 2: ImageNet at a higher resolution, with Polyak averaging.
TABLE_2 = {"ViT-L/16": 512, "ViT-H/14": 518}


def warmup(steps: int) -> Duration:
  """The warm-up of a run of that many steps: 500 steps, or 100 of 500.

  The paper names none. The released code has 500 steps; its successor big_vision has 100 for Pets
  and Flowers, which have 500 steps in all.
  """
  return Duration(steps=max(1, min(500, steps // 5)))


def with_lengths(config: Config, examples: int = 0) -> Config:
  """The settings with the warm-up for the length of the run, and ten evaluations and saves.

  Args:
    config: the settings.
    examples: training images; 0: not known, so that the warm-up of a length that is not in steps
      stays as it is.
  """
  duration, tenth = config.duration, fraction(config.duration, 10)
  begin = config.schedule.warmup
  if duration.steps or examples:
    begin = warmup(duration.in_steps(batch_size=config.batch_size, epoch_examples=examples))
  return dataclasses.replace(
    config,
    evaluate_every=tenth,
    schedule=dataclasses.replace(config.schedule, warmup=begin),
    checkpoint=dataclasses.replace(config.checkpoint, every=tenth),
  )


def sets(task: str, *, part: str, real: bool) -> tuple[Dataset, dict[str, Classification]]:
  """Training data of a task, and the sets to score; the arguments are those of `finetune`.

  Raises:
    ConfigError: ReaL's labels are asked for of other images than ImageNet's.
  """
  row = TASKS[task]
  if real and (task != "imagenet" or part != "all"):
    raise ConfigError(
      "ReaL has new labels for the validation split of imagenet; leave real out for other tasks "
      "and for development."
    )
  if part == "all":
    more = {"real": SETS["real"]} if real else {}
    return Dataset(row.source, "train"), {"test": Classification(row.source, row.test), **more}
  # TFDS rounds both percentages to the same example, so the two parts do not overlap.
  cut = f"{100 - row.development}%"
  held_back = {"development": Classification(row.source, f"train[{cut}:]")}
  return Dataset(row.source, f"train[:{cut}]"), held_back


# The paper names the factor alone, so the average keeps its start: 13.5% after 20,000 steps.
AVERAGE = dict(ema=0.9999, ema_corrected=False)


def finetune(
  model: str,
  task: str,
  *,
  part: str,
  crops: str = "paper",
  real: bool = False,
  replace: Replace = unchanged,
) -> Config:
  """One row of Table 4 for one model (Section 3.2, Appendix B.1.1).

  SGD with momentum 0.9, batch 512, warm-up, cosine decay, no weight decay, global-norm clipping at
  1, 384 px (378 if patches have 14 pixels). A linear head, which starts at zero,
  replaces the whole head of pre-training. ViT-L/16 and ViT-H/14 on ImageNet are trained as in
  Table 2. The learning rate is 0.01, which is in the grids of all tasks; the paper chooses it for
  each task and model.

  Args:
    model: a model name from the paper; empty: the model of the weights.
    task: a key of `TASKS`.
    part: "all" trains on the whole training split and scores the test split; "development" holds
      out the paper's percentage of the training split and scores that part.
    crops: a key of `CROPS`.
    real: whether to score ImageNet's ReaL labels too.
    replace: as in vit_jax/recipes/following.py.
  """
  options = dict(part=part, crops=crops, real=real)
  name = replace(of_table_4(model, task, **options)).model.name
  return with_lengths(replace(of_table_4(name, task, **options)))


def of_table_4(model: str, task: str, *, part: str, crops: str, real: bool) -> Config:
  """As `finetune`, before settings are replaced."""
  row = TASKS[task]
  large = TABLE_2.get(model) if task == "imagenet" else None
  train, scored = sets(task, part=part, real=real)
  return Config(
    batch_size=512,
    duration=Duration(steps=row.steps),
    new_head=True,
    model=Model(
      name=model,
      num_classes=row.num_classes,
      compute_dtype=AUTO,
    ),
    optimizer=SGD(momentum=0.9, clip_norm=1.0, **(AVERAGE if large else {})),
    schedule=Schedule(learning_rate=0.01, decay="cosine", warmup=warmup(row.steps)),
    data=Data(
      train=train,
      image_size=large or (largest_side(model, 384) if model else 384),
      train_resize_ratio=CROPS[crops],
    ),
    evaluate=scored,
  )
