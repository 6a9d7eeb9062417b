"""The rows of the paper's tables as configs: pre-training, fine-tuning, evaluation."""

from vit_jax.recipes.bit import (
  LENGTHS_OF_BIT,
  RESOLUTIONS,
  hyperrule,
  is_resnet,
  of_task,
  pretrain_as_bit,
  resnet,
)
from vit_jax.recipes.finetuning import TASKS, Task, finetune
from vit_jax.recipes.loading import choice, largest_side, load, options, resolve
from vit_jax.recipes.pretraining import DATASETS, examples_of, pretrain, pretraining
from vit_jax.recipes.suites import SETS, SUITES, evaluation

__all__ = [
  "DATASETS",
  "LENGTHS_OF_BIT",
  "RESOLUTIONS",
  "SETS",
  "SUITES",
  "TASKS",
  "Task",
  "choice",
  "evaluation",
  "examples_of",
  "finetune",
  "hyperrule",
  "is_resnet",
  "largest_side",
  "load",
  "of_task",
  "options",
  "pretrain",
  "pretrain_as_bit",
  "pretraining",
  "resnet",
  "resolve",
]
