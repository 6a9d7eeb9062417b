"""Finds images that two sources have in common, by their place in files; reads no image.

The same file is the same image, whatever path leads to it. So is the same record of a TFDS data
set. tools/dedup.py finds copies under other names.
"""

import collections
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Block

_STRETCH = 2**20  # records compared at a time
_ENOUGH = 10_000_000  # shared images; counting stops there


class Shared(NamedTuple):
  """The images that two sources have in common.

  Attributes:
    images: the number of images.
    example: the name of one of them.
  """

  images: int
  example: str

  def in_words(self) -> str:
    """As text: "5 images (such as ...)"."""
    many = f"at least {_ENOUGH:,}" if self.images >= _ENOUGH else f"{self.images:,}"
    return f"{many} image{'s' * (self.images != 1)} (such as {self.example!r})"


def shared(one: Source, other: Source) -> Shared | None:
  """The images that both sources have; None if there are none.

  Looks at each folder or file, and at each image in the files that both sources use. Does not look
  at all images of a large dataset.
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


def places(source: Source) -> set[str]:
  """The folders and files that hold the images of a source."""
  return {block.place for block in source.blocks()}


def _common(one: Block, other: Block) -> Iterator[tuple[np.ndarray, int]]:
  """Yields items that both blocks hold, a stretch at a time, with the index of one of them."""
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
  """The items of a block that its source contains, and their indices in the source."""
  indices = block.index(np.asarray(block.rows))
  return np.asarray(block.items)[indices >= 0], indices[indices >= 0]
