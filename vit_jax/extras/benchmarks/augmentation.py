"""Speed of the input pipeline with the augmentation of each recipe, beside tf.data's.

The files, the crop and the way of measuring are those of `benchmarks.input`. In tf.data the
operations are written with TensorFlow's own, as in the published code; TensorFlow has no part of
this project's pipeline.
"""

import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vit_jax.config import Augmentation
from vit_jax.data import sources
from vit_jax.data.augmentation.color_jitter import ColorJitter
from vit_jax.data.augmentation.rand_augment import RandAugment
from vit_jax.data.augmentation.rand_augment_timm import RandAugmentTimm
from vit_jax.data.augmentation.random_erasing import RandomErasing
from vit_jax.data.augmentation.three_augment import ThreeAugment
from vit_jax.extras.benchmarks import input as pipelines
from vit_jax.extras.benchmarks import tf_augmentation


class Case(NamedTuple):
  """The steps of a recipe, and the same in TensorFlow, (tf, image) -> image; None: not written."""

  steps: Sequence[Augmentation]
  in_tf: Callable | None


CASES = {
  "crop and flip": Case((), lambda _, image: image),
  "RandAugment(2, 10)": Case((RandAugment(),), tf_augmentation.rand_augment),
  "RandAugment(2, 15)": Case(
    (RandAugment(magnitude=15),),
    functools.partial(tf_augmentation.rand_augment, magnitude=15),
  ),
  "3-Augment": Case((ThreeAugment(), ColorJitter()), tf_augmentation.three_augment),
  "rand-m9-mstd0.5-inc1, erasing": Case((RandAugmentTimm(), RandomErasing()), None),
}


def measure(*, rounds: int = 5, seconds: float = 4.0, files: int = 512) -> list[dict]:
  """Measures every pipeline in turn, `rounds` times, and reports medians.

  Args:
    rounds: number of turns of each pipeline.
    seconds: length of a turn without warm-up.
    files: number of JPEGs to make.

  Returns:
    [{name, images_per_second, ratio, cpu_microseconds}]; ratio is to tf.data's with the same
    augmentation, or with crop and flip alone where that is not written in TensorFlow.

  Raises:
    SystemExit: TensorFlow is not installed.
  """
  threads = len(os.sched_getaffinity(0))
  options = dict(batch_size=64)
  with tempfile.TemporaryDirectory() as folder:
    pipelines.write_jpegs(folder, count=files)
    source = sources.open_source(f"folder:{folder}", split="")
    runs = {}
    beside = {}
    for name, case in CASES.items():
      theirs = f"tf.data, {name}"
      ours = f"vit_jax, {name}"
      if case.in_tf:
        runs[theirs] = functools.partial(
          pipelines.tf_batches, folder, augment=case.in_tf, **options
        )
      runs[ours] = functools.partial(
        pipelines.our_batches, source, threads=threads, steps=case.steps, **options
      )
      other = theirs if case.in_tf else next(iter(runs))
      beside[ours] = other
      beside[theirs] = other
    turns = pipelines.turns(runs, rounds, seconds=seconds, **options)
  return [pipelines.row(name, turns, beside[name]) for name in runs]
