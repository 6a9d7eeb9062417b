"""What every source of examples looks like."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from vit_jax.config import ConfigError


class SourceError(ConfigError):
  """The data is missing or was asked for wrongly; the message says what to do."""


class Example(NamedTuple):
  """One image, not decoded yet where the source stores files.

  Attributes:
    image: an encoded image file, or uint8 pixels (H, W, C) or (H, W).
    labels: class indices; exactly one where the source is single-label, () where it has none.
    name: file path, or data set, split and position: for messages.
  """

  image: bytes | np.ndarray
  labels: tuple[int, ...]
  name: str


class Block(NamedTuple):
  """Some examples of a source, and where their images lie: by that the same image is known again.

  Attributes:
    place: what holds the images, such as the real path of a folder or file.
    items: which of those in there: numbers, or names as bytes.
    rows: of each item, its row in the source that holds the files.
    index: function from such rows to indices in the source that was asked, -1 for what it lacks.
  """

  place: str
  items: range | np.ndarray
  rows: range | np.ndarray
  index: Callable[[np.ndarray], np.ndarray] = np.asarray


class Source(Protocol):
  """Random access to examples. Sources are pickled into worker processes.

  Attributes:
    class_names: of the labels, by index; () where the examples have no labels.
    multi_label: whether an example has any number of labels, not exactly one.
    identity: what the examples are, in one line: of sources with equal ones they are the same.
  """

  class_names: tuple[str, ...]
  multi_label: bool
  identity: str

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Example: ...

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of an example alone, as cheaply as the source can tell them."""
    ...

  def name(self, index: int) -> str:
    """The name of an example alone; nothing is read. Different examples have different names."""
    ...

  def blocks(self) -> Iterator[Block]:
    """Where the images lie, for `overlap.shared`; none of what is made up. No image is read."""
    ...


def refuse_split(split: str, *, kind: str) -> None:
  """Raises SourceError when a split is named for a kind of source that has none."""
  if split:
    raise SourceError(
      f'A "{kind}" source has no splits, but split "{split}" was asked for; set the split to "".'
    )
