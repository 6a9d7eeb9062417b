"""What the steps of config.data.augment do, one operation at a time, for people to look at."""

import functools
from collections.abc import Callable, Sequence
from numbers import Number
from typing import NamedTuple

import numpy as np

from vit_jax.config import Augmentation

_DRAWS = 400  # of a step, in which each of its operations comes several times


class Sample(NamedTuple):
  """One operation on some images.

  Attributes:
    name: of the step and the operation, such as "rand_augment: rotate".
    arguments: what was drawn for each image, such as "degrees=-30".
    images: (N, S, S, 3) uint8.
  """

  name: str
  arguments: Sequence[str]
  images: np.ndarray


def samples(steps: Sequence[Augmentation], images: np.ndarray) -> list[Sample]:
  """Every operation of the steps, each alone on the same images (N, S, S, 3) uint8."""
  return [
    _sample(f"{step.kind}: {name}", drawn, images)
    for step in steps
    for name, drawn in _operations(step, side=images.shape[1], count=len(images)).items()
  ]


def _operations(step: Augmentation, *, side: int, count: int) -> dict[str, list[Callable]]:
  """At most `count` draws of each operation, by its name."""
  found = {}
  for number in range(_DRAWS):
    for operation in step.draw(np.random.default_rng(number), side):
      drawn = found.setdefault(getattr(operation, "func", operation).__name__, [])
      drawn += [operation] if len(drawn) < count else []
  return dict(sorted(found.items()))


def _sample(name: str, drawn: list[Callable], images: np.ndarray) -> Sample:
  chosen = [drawn[place % len(drawn)] for place in range(len(images))]
  changed = [operation(image) for operation, image in zip(chosen, images, strict=True)]
  return Sample(name, [*map(_arguments, chosen)], np.stack(changed))


def _arguments(operation: Callable) -> str:
  """The numbers that an operation was drawn with; pixels are left out."""
  given = operation.keywords if isinstance(operation, functools.partial) else {}
  return ", ".join(f"{key}={x:.4g}" for key, x in given.items() if isinstance(x, Number))
