"""Shows each operation of config.data.augment alone on the same images, for people to look at."""

import functools
from collections.abc import Callable, Sequence
from numbers import Number
from typing import NamedTuple

import numpy as np

from vit_jax.config import Augmentation, Size, as_size

_DRAWS = 400  # draws of a step; enough for several of each of its operations


class Sample(NamedTuple):
  """One operation on some images.

  Attributes:
    name: of the step and the operation, such as "rand_augment: rotate".
    arguments: the drawn numbers of each image, such as "degrees=-30".
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
    for name, drawn in _operations(step, size=as_size(images.shape[1:3]), count=len(images)).items()
  ]


def _operations(step: Augmentation, *, size: Size, count: int) -> dict[str, list[Callable]]:
  """At most `count` draws of each operation, by its name."""
  found = {}
  for number in range(_DRAWS):
    for operation in step.draw(np.random.default_rng(number), size):
      drawn = found.setdefault(getattr(operation, "func", operation).__name__, [])
      if len(drawn) < count:
        drawn.append(operation)
  return dict(sorted(found.items()))


def _sample(name: str, drawn: list[Callable], images: np.ndarray) -> Sample:
  chosen = [drawn[place % len(drawn)] for place in range(len(images))]
  changed = [operation(image) for operation, image in zip(chosen, images, strict=True)]
  return Sample(name, [*map(_arguments, chosen)], np.stack(changed))


def _arguments(operation: Callable) -> str:
  """The numbers that an operation was drawn with; pixels are left out."""
  if not isinstance(operation, functools.partial):
    return ""
  drawn = operation.keywords.items()
  return ", ".join(f"{key}={x:.4g}" for key, x in drawn if isinstance(x, Number))
