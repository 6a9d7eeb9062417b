"""Refuses a run that evaluates on images of its training data, unless a setting allows it.

Two images are the same if they are the same file, whatever path leads to it, or the same record of
a file of records. No image is read; tools/dedup.py finds copies under other names.
"""

import collections
import logging
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from vit_jax.config import ConfigError
from vit_jax.data.datasets import NamedDataset
from vit_jax.data.sources import Source
from vit_jax.data.sources.base import Block

_ENOUGH = 10_000_000  # shared images; counting stops there

_log = logging.getLogger(__name__)


def check(trained: Iterable[NamedDataset], scored: NamedDataset, *, allow: bool):
  """Refuses to score images that are trained on; with `allow`, only logs a warning.

  Args:
    trained: the datasets to train on.
    scored: the dataset to evaluate on.
    allow: config.data.allow_overlap.

  Raises:
    ConfigError: the datasets share images, and `allow` is False.
  """
  for named in trained:
    common = shared(named.source, scored.source)
    if not common:
      if named.changed and _by_place(named.source).keys() & _by_place(scored.source).keys():
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
    count = f"{self.images:,}"
    if self.images >= _ENOUGH:
      count = f"at least {_ENOUGH:,}"
    return f"{count} image{'s' * (self.images != 1)} (such as {self.example!r})"


def shared(first: Source, second: Source) -> Shared | None:
  """The images that both sources have; None if there are none.

  Compares only the folders and files that both sources use, not all images of a large dataset.
  Stops counting at `_ENOUGH`.
  """
  theirs = _by_place(second)
  count = 0
  example = ""
  for place, blocks in _by_place(first).items():
    if place in theirs and count < _ENOUGH:
      items, indices = _held(blocks)
      others, _ = _held(theirs[place])
      common, at, _ = np.intersect1d(items, others, return_indices=True)
      if len(common):
        example = example or first.name(int(indices[at[0]]))
        count += len(common)
  if not count:
    return None
  return Shared(count, example)


def _by_place(source: Source) -> dict[str, list[Block]]:
  """The blocks of a source, by the folder or file that holds their images."""
  places = collections.defaultdict(list)
  for block in source.blocks():
    places[block.place].append(block)
  return places


def _held(blocks: list[Block]) -> tuple[np.ndarray, np.ndarray]:
  """The items of some blocks that their source contains, and their indices in the source."""
  items = np.concatenate([np.asarray(block.items) for block in blocks])
  indices = np.concatenate([block.index(np.asarray(block.rows)) for block in blocks])
  return items[indices >= 0], indices[indices >= 0]
