"""Fine-tuning on the tasks of VTAB-1k."""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Dataset, Duration
from vit_jax.config.data import INCEPTION, RESIZE_RATIO
from vit_jax.config.fields import is_auto
from vit_jax.config.resolve import with_value
from vit_jax.evaluation.classification import Classification
from vit_jax.extras.sources.vtab_tasks import TASKS
from vit_jax.recipes.finetuning import finetune
from vit_jax.recipes.following import Replace, unchanged
from vit_jax.recipes.loading import largest_side

STEPS = 2500
SIDE = 384
LEARNING_RATE = 0.01
SMOKE_STEPS = 4
SMOKE_SIDE = 64
SMOKE_BATCH = 8


@dataclasses.dataclass(frozen=True)
class Preparation:
  """How the training images of a task are prepared, and why.

  Attributes:
    crop: whether to resize the image to a larger square and take a random crop.
    flip: whether to flip half of the images left to right.
    why: what decides it.
  """

  crop: bool
  flip: bool
  why: str


NATURAL = Preparation(True, True, "the class stays the same")

# BiT resizes, crops and flips, but leaves out what would destroy the label (its Section 3.3).
PREPARATIONS = {
  "caltech101": NATURAL,
  "cifar-100": NATURAL,
  "dtd": NATURAL,
  "flowers102": NATURAL,
  "pets": NATURAL,
  "sun397": NATURAL,
  "svhn": Preparation(True, False, "a mirrored numeral is another sign"),
  "camelyon": Preparation(True, True, "tissue has no side; the labelled centre stays in the crop"),
  "eurosat": Preparation(True, True, "seen from above, a place has no side"),
  "resisc45": Preparation(True, True, "seen from above, a place has no side"),
  "retinopathy": Preparation(True, True, "left and right eyes are mirror images of each other"),
  "clevr-count": Preparation(False, True, "a crop can cut objects off; mirrored, they are as many"),
  "clevr-dist": Preparation(False, True, "a crop enlarges objects, and so brings them nearer"),
  "dmlab": Preparation(False, True, "a crop enlarges objects, and so brings them nearer"),
  "dspr-loc": Preparation(False, False, "the label is the horizontal place"),
  "dspr-ori": Preparation(False, False, "a mirror turns the shape; a crop can cut it off"),
  "kitti-dist": Preparation(False, True, "a crop enlarges vehicles, and so brings them nearer"),
  "snorb-azim": Preparation(True, False, "a mirror turns the object around its vertical axis"),
  "snorb-elev": Preparation(True, True, "the height of the camera stays the same"),
}

PARTS = {
  "all": ("train800val200", "test"),
  "development": ("train800", "val200"),
  "smoke": ("train800", "val200"),
}


def finetune_on_vtab(model: str, task: str, *, part: str, replace: Replace = unchanged) -> Config:
  """Fine-tuning on one task: VTAB's row of Table 4 (Section 4.1, Appendix B.1.1).

  2,500 steps at a learning rate of 0.01 for every task; the rest as in all fine-tuning. Training
  images are cropped and flipped as in `PREPARATIONS`; without a crop, the whole image is resized to
  the square.

  Args:
    model: a model name from the paper.
    task: a key of `TASKS`.
    replace: as in vit_jax/recipes/following.py.
    part: "all" trains on all 1,000 images and scores the test set; "development" trains on 800 and
      scores the other 200; "smoke" does the same in a few steps with few images.

  Raises:
    ConfigError: there is no such model.
  """
  name = replace(of_task(model, task, part)).model.name
  config = of_task(name, task, part)
  length = replace(config).duration
  if is_auto(length):
    return config
  return with_value(config, "checkpoint.every", length.every_part(5))


def of_task(model: str, task: str, part: str) -> Config:
  """As `finetune_on_vtab`, before settings are replaced."""
  base = finetune(model, "cifar100", part="all")  # a row with the settings that all tasks share
  steps = STEPS
  side = SIDE
  batch_size = base.batch_size
  if part == "smoke":
    steps = SMOKE_STEPS
    side = SMOKE_SIDE
    batch_size = SMOKE_BATCH
  train, scored = PARTS[part]
  source = f"vtab:{task}"
  images = PREPARATIONS[task]
  crop = dict(crop_area=(1.0, 1.0), crop_aspect=(1.0, 1.0), train_resize_ratio=0.0)
  if images.crop:
    crop = dict(crop_area=INCEPTION, train_resize_ratio=RESIZE_RATIO)
  return dataclasses.replace(
    base,
    batch_size=batch_size,
    duration=Duration(steps=steps),
    evaluate_every=Duration(),  # only after the last step, because some test sets are large
    model=dataclasses.replace(base.model, num_classes=TASKS[task].num_classes),
    schedule=dataclasses.replace(base.schedule, learning_rate=LEARNING_RATE),
    data=Data(
      train=Dataset(source, train),
      image_size=largest_side(model, side),
      flip=images.flip,
      evaluate_resize=0,
      **crop,
    ),
    evaluate={scored: Classification(source, scored)},
    checkpoint=Checkpoint(keep_last=1),
  )
