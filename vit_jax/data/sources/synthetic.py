"""Random images at the speed of memory, for measurements without the cost of input."""

from collections.abc import Iterator

import numpy as np

from vit_jax.data.sources.base import Block, Example, SourceError, refuse_split

_LENGTH = 1_281_167  # the size of ImageNet, so that an epoch has as many steps
_SIDE = 256  # pixels
_POOL = 64  # distinct images; few enough to stay in the processor's cache


class Synthetic:
  """Deterministic random uint8 images (256, 256, 3) with labels below `num_classes`.

  Raises:
    SourceError: a split is named, or there is no class.
  """

  multi_label = False

  def __init__(self, *, split: str, num_classes: int):
    refuse_split(split, kind="synthetic")
    if not num_classes:
      raise SourceError(
        'A "synthetic" source has as many classes as config.model.num_classes, which is 0; give '
        "it, such as --config.model.num_classes=10."
      )
    self.class_names = tuple(str(label) for label in range(num_classes))
    self.identity = f"synthetic {num_classes}"
    rng = np.random.default_rng(0)
    self._images = rng.integers(0, 256, (_POOL, _SIDE, _SIDE, 3), dtype=np.uint8)

  def __len__(self) -> int:
    return _LENGTH

  def __getitem__(self, index: int) -> Example:
    return Example(self._images[index % _POOL], self.labels(index), self.name(index))

  def labels(self, index: int) -> tuple[int, ...]:
    """A multiplicative hash: neighbouring examples get unrelated labels."""
    return ((index * 2_654_435_761 % 2**32) % len(self.class_names),)

  def name(self, index: int) -> str:
    """A name with the index."""
    return f"synthetic example {index}"

  def blocks(self) -> Iterator[Block]:
    """None: a run may train and evaluate on the same random images."""
    return iter(())
