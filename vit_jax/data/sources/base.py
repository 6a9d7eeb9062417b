"""The protocol of all sources of examples."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from vit_jax.config import ConfigError


class SourceError(ConfigError):
  """The data is missing, or its settings are wrong; the message says what to do."""


class Example(NamedTuple):
  """One image. If the source stores files, the image is not decoded yet.

  Attributes:
    image: an encoded image file, or uint8 pixels (H, W, C) or (H, W).
    labels: class indices; exactly one if the source is single-label, () if it has no labels.
    name: the file path, or dataset, split and position; used in messages.
  """

  image: bytes | np.ndarray
  labels: tuple[int, ...]
  name: str


class Block(NamedTuple):
  """Some examples of a source, and where their images are stored, to find the same image again.

  Attributes:
    place: the folder or file that holds the images, such as its real path.
    items: the images in that place: numbers, or names as bytes.
    rows: for each item, its row in the source that reads the files.
    index: function from these rows to indices in this source; -1 for rows that it does not contain.
  """

  place: str
  items: range | np.ndarray
  rows: range | np.ndarray
  index: Callable[[np.ndarray], np.ndarray] = np.asarray


class Source(Protocol):
  """Random access to examples. Sources must be picklable, for worker processes.

  Attributes:
    class_names: the name of each label, by index; () if the examples have no labels.
    multi_label: whether an example has any number of labels, rather than exactly one.
    identity: one line that identifies the examples: sources with equal identities have the same.
    notes: optional; sentences that a user should see, such as on files that are left out.
  """

  class_names: tuple[str, ...]
  multi_label: bool
  identity: str

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> Example: ...

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of an example, without its image if possible."""
    ...

  def name(self, index: int) -> str:
    """The name of an example; reads nothing. Different examples have different names."""
    ...

  def blocks(self) -> Iterator[Block]:
    """Where the images are stored, for `leakage.shared`; nothing for synthetic images. No reads."""
    ...


def refuse_split(split: str, *, kind: str) -> None:
  """Raises SourceError if a split is given for a kind of source without splits."""
  if split:
    raise SourceError(
      f'A "{kind}" source has no splits, but split "{split}" was given; set the split to "".'
    )
