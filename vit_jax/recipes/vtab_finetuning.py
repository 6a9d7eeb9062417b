"""Fine-tuning on the tasks of VTAB-1k."""

import dataclasses

from vit_jax.config import Checkpoint, Config, Data, Dataset, Duration
from vit_jax.data.sources.vtab_tasks import TASKS
from vit_jax.recipes.finetuning import finetune
from vit_jax.recipes.sizes import largest_side

STEPS, SIDE, LEARNING_RATE = 2500, 384, 0.01
SMOKE_STEPS, SMOKE_SIDE, SMOKE_BATCH = 4, 64, 8
PARTS = {
  "all": ("train800val200", "test"),
  "development": ("train800", "val200"),
  "smoke": ("train800", "val200"),
}


def finetune_on_vtab(model: str, task: str, *, part: str) -> Config:
  """Fine-tuning on one task: VTAB's row of Table 4 (Section 4.1, Appendix B.1.1).

  2,500 steps at a learning rate of 0.01 for every task; the rest as in all fine-tuning. Images are
  resized to the square and neither cropped nor flipped. The paper does not mention either, and both
  would make the labels of many tasks (places, distances, orientations) wrong.

  Args:
    model: a model name from the paper.
    task: a key of `TASKS`.
    part: "all" trains on all 1,000 images and scores the test set; "development" trains on 800 and
      scores the other 200; "smoke" does the same in a few steps with few images.

  Raises:
    ConfigError: there is no such model.
  """
  base = finetune(model, "cifar100", part="all")  # a row with the settings that all tasks share
  smoke = part == "smoke"
  steps = SMOKE_STEPS if smoke else STEPS
  train, scored = PARTS[part]
  source = f"vtab:{task}"
  return dataclasses.replace(
    base,
    batch_size=SMOKE_BATCH if smoke else base.batch_size,
    duration=Duration(steps=steps),
    evaluate_every=Duration(),  # only after the last step, because some test sets are large
    model=dataclasses.replace(base.model, num_classes=TASKS[task].num_classes),
    schedule=dataclasses.replace(base.schedule, learning_rate=LEARNING_RATE),
    data=Data(
      train=Dataset(source, train),
      evaluate={scored: Dataset(source, scored)},
      image_size=largest_side(model, SMOKE_SIDE if smoke else SIDE),
      crop_area=(1.0, 1.0),
      crop_aspect=(1.0, 1.0),
      flip=False,
    ),
    checkpoint=Checkpoint(every=Duration(steps=max(1, steps // 5)), keep_last=1),
  )
