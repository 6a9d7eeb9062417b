"""Images that two sources have in common, told by where they lie; no image is read.

The same file counts as the same image by whatever path it is reached, and so does the same record
of a TFDS data set. Copies under other names are for tools/dedup.py to find.
"""

import collections
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Block

_STRETCH = 2**20  # records looked at a time
_ENOUGH = 10_000_000  # shared images; more are not counted


class Shared(NamedTuple):
  """What two sources have in common.

  Attributes:
    images: how many images.
    example: the name of one.
  """

  images: int
  example: str

  def in_words(self) -> str:
    """As "5 images (such as ...)"."""
    many = f"at least {_ENOUGH:,}" if self.images >= _ENOUGH else f"{self.images:,}"
    return f"{many} image{'s' * (self.images != 1)} (such as {self.example!r})"


def shared(one: Source, other: Source) -> Shared | None:
  """What both sources have; None: nothing.

  The time is that of a look at each folder or file, and at each of the images in which the sources
  would overlap if nothing was left out of them: not at all images of a large data set.
  """
  places = collections.defaultdict(list)
  for block in other.blocks():
    places[block.place].append(block)
  found, example, count = collections.defaultdict(list), "", 0
  for block in one.blocks():
    for second in places.get(block.place, ()):
      for items, index in _common(block, second):
        example = example or one.name(int(index))
        found[block.place].append(items)
        count += len(items)
        if count >= _ENOUGH:
          return Shared(_ENOUGH, example)
  images = sum(len(np.unique(np.concatenate(items))) for items in found.values())
  return Shared(images, example) if images else None


def _common(one: Block, other: Block) -> Iterator[tuple[np.ndarray, int]]:
  """Items that both hold, some at a time, each with the index of one of them."""
  if isinstance(one.items, range) and isinstance(other.items, range):
    first, end = (
      max(one.items.start, other.items.start),
      min(one.items.stop, other.items.stop),
    )
    for begin in range(first, end, _STRETCH):
      items = np.arange(begin, min(begin + _STRETCH, end))
      indices, others = (
        block.index(items + (block.rows.start - block.items.start)) for block in (one, other)
      )
      both = (indices >= 0) & (others >= 0)
      if both.any():
        yield items[both], indices[both][0]
    return
  (items, indices), (others, _) = (_indexed(block) for block in (one, other))
  both = np.isin(items, others)
  if both.any():
    yield items[both], indices[both][0]


def _indexed(block: Block) -> tuple[np.ndarray, np.ndarray]:
  """The items of a block that its source has, and their indices there."""
  indices = block.index(np.asarray(block.rows))
  return np.asarray(block.items)[indices >= 0], indices[indices >= 0]
