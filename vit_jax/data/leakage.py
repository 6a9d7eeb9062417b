"""Refuses a run that evaluates on images of its training data, unless a setting allows it.

The same file is the same image, whatever path leads to it. So is the same record of a file of
records. No image is read; tools/dedup.py finds copies under other names.
"""

import collections
import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from vit_jax.config import ConfigError
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Block

_STRETCH = 2**20  # records compared at a time
_ENOUGH = 10_000_000  # shared images; counting stops there

_log = logging.getLogger(__name__)


def check(trained: Iterable[NamedDataset], scored: NamedDataset, *, allow: bool):
  """Refuses data that is both trained on and scored; with `allow`, only logs a warning.

  Args:
    trained: the datasets that are trained on.
    scored: the data to evaluate on.
    allow: config.data.allow_overlap.

  Raises:
    ConfigError: there are such images, and `allow` is False.
  """
  for named in trained:
    common = shared(named.source, scored.source)
    if not common:
      if named.changed and _places(named.source) & _places(scored.source):
        _log.warning("%s has changed since, so images of it may be in %s.", named, scored)
      continue
    message = f"{named} and {scored} have {common.in_words()} in common"
    if not allow:
      raise ConfigError(
        f"{message}; evaluate on images that are not trained on, such as the parts [:90%] and "
        "[90%:], or set config.data.allow_overlap=True."
      )
    _log.warning("%s; config.data.allow_overlap=True allows it.", message)


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


def shared(first: Source, second: Source) -> Shared | None:
  """The images that both sources have; None if there are none.

  Looks at each folder or file, and at each image in the files that both sources use. Does not look
  at all images of a large dataset.
  """
  places = collections.defaultdict(list)
  for block in second.blocks():
    places[block.place].append(block)
  common, example, count = collections.defaultdict(list), "", 0
  for block in first.blocks():
    for other in places.get(block.place, ()):
      for items, index in _common(block, other):
        example = example or first.name(int(index))
        common[block.place].append(items)
        count += len(items)
        if count >= _ENOUGH:
          return Shared(_ENOUGH, example)
  images = sum(len(np.unique(np.concatenate(items))) for items in common.values())
  return Shared(images, example) if images else None


def _places(source: Source) -> set[str]:
  """The folders and files that hold the images of a source."""
  return {block.place for block in source.blocks()}


def _common(first: Block, second: Block) -> Iterator[tuple[np.ndarray, int]]:
  """Yields items that both blocks hold, a stretch at a time, with the index of one of them."""
  if isinstance(first.items, range) and isinstance(second.items, range):
    begin = max(first.items.start, second.items.start)
    end = min(first.items.stop, second.items.stop)
    for start in range(begin, end, _STRETCH):
      items = np.arange(start, min(start + _STRETCH, end))
      indices, others = (
        block.index(items + (block.rows.start - block.items.start)) for block in (first, second)
      )
      both = (indices >= 0) & (others >= 0)
      if both.any():
        yield items[both], indices[both][0]
    return
  (items, indices), (others, _) = (_indexed(block) for block in (first, second))
  both = np.isin(items, others)
  if both.any():
    yield items[both], indices[both][0]


def _indexed(block: Block) -> tuple[np.ndarray, np.ndarray]:
  """The items of a block that its source contains, and their indices in the source."""
  indices = block.index(np.asarray(block.rows))
  return np.asarray(block.items)[indices >= 0], indices[indices >= 0]
