"""The interface of sources: random access to images and their labels."""

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.config import ConfigError
from vit_jax.data.fields import Field
from vit_jax.storage.paths import Path


class SourceError(ConfigError):
  """The data is missing, or its settings are wrong; the message says what to do."""


class ColumnError(SourceError):
  """A column of images or labels must be named by `image_key` or `label_key`, or is misnamed."""


class Example(NamedTuple):
  """One image. If the source stores files, the image is not decoded yet.

  Attributes:
    image: an encoded image file, or uint8 pixels (H, W, C) or (H, W).
    labels: class indices; exactly one if the source is single-label, () if it has no labels.
    name: the file path, or dataset, split and position; used in messages.
    fields: the other arrays that the source declares.
  """

  image: bytes | np.ndarray
  labels: tuple[int, ...]
  name: str
  fields: Mapping[str, np.ndarray] = {}


class Block(NamedTuple):
  """Some examples of a source, and where their images are stored; used to find shared images.

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


class Source(abc.ABC):
  """Random access to examples.

  Five members are required: len, an example by its index, its labels, the names of the classes and
  the identity. The others have defaults. A source whose images lie in files also needs `blocks`:
  without it, images that two parts or two paths have in common are not found. It needs `anywhere`
  if the argument of its form is a path.

  Many threads read examples and labels at once. An example that raises BadImage or OSError counts
  as broken: training leaves it out, and an evaluation of its set is not scored. Before that, an
  OSError that may pass is tried again (`data/retry_reads.py`). Any other error ends the training.

  A source that `config.data.*.source` can name has a line in `registry.SOURCES` that leads to its
  class, and sets `form`. Its constructor takes the text after the colon of the form, if there is
  one. The keyword arguments of the constructor are the settings that it uses, among `split`,
  `image_key`, `label_key` and `max_pixels`. Without `split`, it has no splits. Without `label_key`,
  its labels can be dropped, but not chosen. It raises SourceError if there is no such data.

  Attributes:
    form: how it is named in settings, such as "folder:DIR".
    class_names: the name of each label, by index; () if the examples have no labels.
    multi_label: whether an example has any number of labels, rather than exactly one.
    identity: one line that identifies these examples, wherever they are stored: sources with equal
      identities have the same names and labels in the same order. Pixels need not be compared.
    distant: whether reading an example waits for a network, so that many should be read at once.
    notes: sentences for the user, such as on files that are left out.
    fields: the arrays of its examples other than image and labels, such as a class for each pixel;
      an objective says which of them it needs.
  """

  form: str
  class_names: tuple[str, ...]
  identity: str
  multi_label: bool = False
  distant: bool = False
  notes: Sequence[str] = ()
  fields: Mapping[str, Field] = {}

  @abc.abstractmethod
  def __len__(self) -> int: ...

  @abc.abstractmethod
  def __getitem__(self, index: int) -> Example: ...

  @abc.abstractmethod
  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of an example, without its image if possible."""

  def name(self, index: int) -> str:
    """The name of an example; reads nothing. Different examples have different names."""
    return f"{self.identity} example {index}"

  def size(self, index: int) -> int:
    """The bytes of an example's file, without reading it; 0 if examples have no files of their own.

    Raises:
      OSError: the file does not exist.
    """
    del index
    return 0

  def blocks(self) -> Iterator[Block]:
    """Where the images are stored, for `leakage.shared`; reads no images.

    The default is one place that all sources of the same identity share. Yield nothing if the same
    images may be trained on and scored.
    """
    yield Block(self.identity, range(len(self)), range(len(self)))

  @classmethod
  def anywhere(cls, argument: str) -> str:
    """The argument of the form for any current directory; override it if it is a path."""
    return argument

  @classmethod
  def named_parts(cls, argument: str) -> dict[str, tuple[str, str]]:
    """The named parts of the data, such as train and test: {name: (argument, split)}.

    Needed if `split` must name a part; otherwise the split "" is all examples.
    """
    del argument
    return {}

  @classmethod
  def recognises(cls, path: Path) -> bool:
    """Whether this source reads a path, or a pattern of paths, that is given without the form."""
    del path
    return False
