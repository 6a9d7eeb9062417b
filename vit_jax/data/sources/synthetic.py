"""Random images at the speed of memory, for measurements without the cost of input."""

import re
from collections.abc import Iterator

import numpy as np

from vit_jax.data.sources.base import Block, Example, Source, SourceError

_LENGTH = 1_281_167  # the size of ImageNet, so that an epoch has as many steps
_SIDE = 256  # pixels
_CLASSES = re.compile("[1-9][0-9]{0,6}")
_POOL = 64  # distinct images; few enough to stay in the processor's cache


class Synthetic(Source):
  """Deterministic random uint8 images (256, 256, 3) with labels below `classes`.

  Raises:
    SourceError: `classes` is not a number of classes.
  """

  form = "synthetic:CLASSES"

  def __init__(self, classes: str):
    if not _CLASSES.fullmatch(classes):
      raise SourceError(f'"synthetic:{classes}" has no number of classes, such as synthetic:10.')
    self.class_names = tuple(str(label) for label in range(int(classes)))
    self.identity = f"synthetic {classes}"
    rng = np.random.default_rng(0)
    self._images = rng.integers(0, 256, (_POOL, _SIDE, _SIDE, 3), dtype=np.uint8)
    self._images.flags.writeable = False  # examples are views of them

  def __len__(self) -> int:
    return _LENGTH

  def __getitem__(self, index: int) -> Example:
    return Example(self._images[index % _POOL], self.labels(index), self.name(index))

  def labels(self, index: int) -> tuple[int, ...]:
    """A multiplicative hash: neighbouring examples get unrelated labels."""
    return ((index * 2_654_435_761 % 2**32) % len(self.class_names),)

  def blocks(self) -> Iterator[Block]:
    """None: a run may train and evaluate on the same random images."""
    return iter(())
