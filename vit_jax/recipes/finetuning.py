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
from vit_jax.config.data import INCEPTION, RESIZE_RATIO
from vit_jax.evaluation.classification import Classification
from vit_jax.learning.optimizers.sgd import SGD
from vit_jax.recipes.following import Replace, unchanged
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

# How training images are cropped: as in the paper (by Section 4.1, out of a square of 448 pixels
# for crops of 384, and in that proportion for other sizes), or as in the code that its authors
# released.
CROPS = {"paper": RESIZE_RATIO, "inception": 0.0}

SIDE = 384  # of images, pixels
# Table 2: ImageNet at a higher resolution, with Polyak averaging.
TABLE_2 = {"ViT-L/16": 512, "ViT-H/14": 518}


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
    scored = {"test": Classification(row.source, row.test)}
    if real:
      scored["real"] = SETS["real"]
    return Dataset(row.source, "train"), scored
  # TFDS rounds both percentages to the same example, so the two splits do not overlap.
  cut = f"{100 - row.development}%"
  held_back = {"development": Classification(row.source, f"train[{cut}:]")}
  return Dataset(row.source, f"train[:{cut}]"), held_back


# The paper gives only the factor, so the average is not corrected: the initial parameters still
# have a weight of 13.5% after 20,000 steps.
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
    model: a model name from the paper; AUTO: the model of the weights, at 384 px without an
      average, whichever it is.
    task: a key of `TASKS`.
    part: "all" trains on the whole training split and scores the test split; "development" holds
      out the paper's percentage of the training split and scores that part.
    crops: a key of `CROPS`.
    real: whether to score ImageNet's ReaL labels too.
    replace: as in vit_jax/recipes/following.py.
  """
  options = dict(part=part, crops=crops, real=real)
  name = replace(of_table_4(model, task, **options)).model.name
  return of_table_4(name, task, **options)


def of_table_4(model: str, task: str, *, part: str, crops: str, real: bool) -> Config:
  """As `finetune`, before settings are replaced."""
  row = TASKS[task]
  train, scored = sets(task, part=part, real=real)
  average = dict(ema=0.0)
  origins = ()
  if task == "imagenet" and model in TABLE_2:
    side = TABLE_2[model]
    average = AVERAGE
  elif model == AUTO:
    side = SIDE
    origins = (("data.image_size", "384 px for every model if only TASK is given"),)
  else:
    side = largest_side(model, SIDE)
  return Config(
    batch_size=512,
    duration=Duration(steps=row.steps),
    new_head=True,
    model=Model(name=model, num_classes=row.num_classes),
    optimizer=SGD(momentum=0.9, clip_norm=1.0, **average),
    schedule=Schedule(learning_rate=0.01, decay="cosine"),
    data=Data(
      train=train,
      image_size=side,
      crop_area=INCEPTION,
      train_resize_ratio=CROPS[crops],
      flip=True,
      evaluate_resize=0,
    ),
    evaluate=scored,
    origins=origins,
  )
