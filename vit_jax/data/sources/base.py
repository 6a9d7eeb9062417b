"""What a source of examples is, and sources that show the examples of others.

A source gives random access to images, their labels, and the fields that it declares.
"""

import abc
import bisect
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from vit_jax.config import ConfigError, View
from vit_jax.process.text import listed
from vit_jax.storage.paths import Path

OWN = ("image", "labels", "mask")  # reserved: every source or every batch has these
TYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")


@dataclasses.dataclass(frozen=True)
class Field:
  """An array of a batch.

  Attributes:
    shape: shape for one example; if the field is dense, without the rows and columns.
    dtype: one of `TYPES`; JAX has no others.
    padding: the value of all elements of rows that do not count, because an image is broken or the
      row only fills up a batch.
    dense: whether there is a value for each pixel of the image, upright by its Exif orientation.
      The values are then cropped and flipped as "image" is, each from the nearest pixel.
  """

  shape: tuple[int, ...] = ()
  dtype: str = "float32"
  padding: float = 0
  dense: bool = False

  def full(self) -> np.ndarray:
    """The padding for an example that does not count."""
    return np.full(self.shape, self.padding, self.dtype)


def holds(dtype: str, value: float) -> bool:
  """Whether a type can hold this number, rounded if it is a float type; False for NaN."""
  if dtype == "bool":
    return value in (0, 1)
  if dtype.startswith("float"):
    return math.isinf(value) or abs(value) <= float(np.finfo(dtype).max)
  whole = math.isfinite(value) and value == math.floor(value)
  return whole and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max


def check_fields(asks: str, needed: Mapping[str, Field], views: Mapping[str, View]):
  """Checks the declarations of an objective or an evaluation.

  Args:
    asks: the setting that declares them, such as "config.objective.kind=x".
    needed: the fields.
    views: the images of a batch.

  Raises:
    ConfigError: names the field or the view.
  """
  if not views:
    raise ConfigError(f"{asks} has no images; give it at least one.")
  for name, view in views.items():
    if name in OWN[1:] or not name.isidentifier() or view.count < 0:
      raise ConfigError(
        f"{asks} has images called {name!r}, {view.count} of an example; rename them to an "
        f"identifier other than {listed(OWN[1:])}, and give a count of at least 0."
      )
  for name, field in needed.items():
    if name in OWN or name in views or not name.isidentifier():
      raise ConfigError(
        f"{asks} needs a field {name!r}; rename it to an identifier other than "
        f"{listed(sorted({*OWN, *views}))}."
      )
    if field.dtype not in TYPES or not holds(field.dtype, field.padding):
      raise ConfigError(
        f"{asks} needs the field {name!r} with the type {field.dtype!r} and the padding "
        f"{field.padding}; the type must be one of {', '.join(TYPES)}, and hold the padding."
      )
    if field.dense and ("image" not in views or views["image"].count):
      raise ConfigError(
        f'{asks} needs the field {name!r}, which follows the crop of "image", so a batch must '
        f"hold one of that name for each example; it has {listed(sorted(views))}."
      )


def check_given_fields(asks: str, needed: Mapping[str, Field], given: Mapping[str, Field], of: str):
  """Checks that a source has the needed fields as they are declared.

  Args:
    asks, needed: as for `check_fields`.
    given: the fields of the source.
    of: the source, in words.

  Raises:
    ConfigError: the source lacks a field, or declares it differently.
  """
  for name, field in needed.items():
    if name not in given:
      has = "it has none beside images and labels"
      if given:
        has = f"it has {listed(sorted(given))}"
      raise ConfigError(
        f"{asks} needs the field {name!r}, and {of} lacks it: {has}; take other data."
      )
    if given[name] != field:
      raise ConfigError(
        f"{asks} needs the field {name!r} as {field}, and {of} has {given[name]}; declare both "
        "alike."
      )


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
  OSError that may pass is tried again (`storage/base.py`). Any other error ends the training.

  A source that `config.data.*.source` can name has a line in `registry.SOURCES` that leads to its
  class, and sets `form`. Its constructor takes the text after the colon of the form, if there is
  one. The keyword arguments of the constructor are the settings that it uses, among `split`,
  `image_key`, `label_key` and `max_pixels`. Without `split`, it has no splits. Without `label_key`,
  its labels can be dropped, but not chosen. It raises SourceError if there is no such data.

  Attributes:
    form: how it is named in settings, such as "folder:DIR".
    parts_by_class: whether a part of a split, such as "[:90%]", is taken from each class, so that
      it depends on the labels.
    class_names: the name of each label, by index; () if the examples have no labels.
    multi_label: whether an example has any number of labels, rather than exactly one.
    none_is_undecided: whether nobody could decide what an example without labels shows, so that it
      is not scored; otherwise it shows none of the classes.
    identity: one line that identifies these examples, wherever they are stored: sources with equal
      identities have the same names and labels in the same order. Pixels need not be compared.
    distant: whether reading an example waits for a network, so that many should be read at once.
    notes: sentences for the user, such as on files that are left out.
    fields: the arrays of its examples other than image and labels, such as a class for each pixel;
      an objective says which of them it needs.
  """

  form: str
  parts_by_class: bool = True
  class_names: tuple[str, ...]
  identity: str
  multi_label: bool = False
  none_is_undecided: bool = False
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
    """Where the images are stored, for `datasets.shared_images`; reads no images.

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


class SourceView(Source):
  """The examples of another source; subclasses change what they say they change."""

  def __init__(self, source: Source):
    self._source = source
    self.identity = source.identity
    self.notes = source.notes
    self.class_names = source.class_names
    self.multi_label = source.multi_label
    self.none_is_undecided = source.none_is_undecided
    self.distant = source.distant
    self.fields = source.fields

  def __len__(self) -> int:
    return len(self._source)

  def __getitem__(self, index: int) -> Example:
    example = self._source[self._row(index)]
    return example._replace(labels=self._seen(example.labels))

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels of the example, as this view changes them."""
    return self._seen(self._source.labels(self._row(index)))

  def name(self, index: int) -> str:
    """As of the source."""
    return self._source.name(self._row(index))

  def size(self, index: int) -> int:
    """As of the source."""
    return self._source.size(self._row(index))

  def blocks(self) -> Iterator[Block]:
    """As of the source."""
    return self._source.blocks()

  def _row(self, index: int) -> int:
    """The index in the source of an example."""
    return index

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    """The labels in this view of an example with these labels in the source."""
    return labels


class Unlabelled(SourceView):
  """The examples of `source` with no labels."""

  def __init__(self, source: Source):
    super().__init__(source)
    self.class_names = ()
    self.multi_label = False
    self.identity = f"{source.identity}, without labels"

  def labels(self, index: int) -> tuple[int, ...]:
    """None; reads nothing."""
    return self._seen((index,))

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    del labels
    return ()


class Renumbered(SourceView):
  """The examples of a source, with other numbers for its classes.

  Args:
    source: the examples.
    numbers: {number of a class in the source: new number}; a label of no class becomes -1.
    class_names: the names by new number; the source may lack some of these classes.
  """

  def __init__(self, source: Source, numbers: Mapping[int, int], class_names: Sequence[str]):
    super().__init__(source)
    self._numbers = dict(numbers)
    self.class_names = tuple(class_names)

  def _seen(self, labels: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(self._numbers.get(label, -1) for label in labels)


def in_one_order(sources: Sequence[Source]) -> list[Source]:
  """The sources; those with the classes of the first in another order are renumbered to its own."""
  names = tuple(sources[0].class_names)
  numbers = {name: number for number, name in enumerate(names)}
  ordered = []
  for source in sources:
    theirs = tuple(source.class_names)
    if theirs != names and len(theirs) == len(names) == len(numbers) and {*theirs} == {*names}:
      source = Renumbered(source, dict(enumerate(map(numbers.get, theirs))), names)
    ordered.append(source)
  return ordered


class Rows(Protocol):
  """Some rows of a source, in a certain order."""

  def __len__(self) -> int: ...

  def __getitem__(self, index: int) -> int: ...

  def find(self, rows: np.ndarray) -> np.ndarray:
    """The index of each row; -1 for a row that is not included."""
    ...


class Listed:
  """Rows given as a list without repetitions."""

  def __init__(self, rows: Sequence[int]):
    self._rows = np.asarray(rows, np.int64)

  def __len__(self) -> int:
    return len(self._rows)

  def __getitem__(self, index: int) -> int:
    return int(self._rows[index])

  def find(self, rows: np.ndarray) -> np.ndarray:
    """As in `Rows`."""
    order = np.argsort(self._rows)
    places = np.searchsorted(self._rows, rows, sorter=order)
    indices = order[np.minimum(places, len(order) - 1)]
    return np.where(self._rows[indices] == rows, indices, -1)


class Selected(SourceView):
  """The examples `rows` of `source`, in this order; `identity` identifies them, as in `Source`."""

  def __init__(self, source: Source, rows: Rows, identity: str):
    super().__init__(source)
    self._rows = rows
    self.identity = identity

  def __len__(self) -> int:
    return len(self._rows)

  def blocks(self) -> Iterator[Block]:
    """Those of the source, with indices of the selected examples."""
    for block in self._source.blocks():
      yield block._replace(index=functools.partial(_selected_index, block.index, self._rows))

  def _row(self, index: int) -> int:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    return self._rows[index]


def _selected_index(inner: Callable, outer: Rows, rows: np.ndarray) -> np.ndarray:
  indices = inner(rows)
  there = indices >= 0
  result = np.full(len(indices), -1)
  result[there] = outer.find(indices[there])
  return result


class Mixed(Source):
  """The examples of several sources, one source after the other.

  Classes have the order of the first source. If the sources do not have the same classes and kind
  of labels, the examples have no labels. They have the fields that all sources declare alike.
  """

  def __init__(self, sources: Sequence[Source]):
    self.identity = f"mix of {'; '.join(source.identity for source in sources)}"
    given, sources = sources, in_one_order(sources)
    if sources != list(given):
      self.identity += ", classes in the order of the first"
    kinds = {(tuple(source.class_names), source.multi_label) for source in sources}
    self.class_names = ()
    if len(kinds) == 1:
      self.class_names, self.multi_label = kinds.pop()
    self._sources = sources if self.class_names else [Unlabelled(source) for source in sources]
    self._ends = list(itertools.accumulate(map(len, sources)))
    self.distant = any(source.distant for source in sources)
    self.fields = {
      name: field
      for name, field in sources[0].fields.items()
      if all(source.fields.get(name) == field for source in sources)
    }

  def __len__(self) -> int:
    return self._ends[-1]

  def __getitem__(self, index: int) -> Example:
    source, row = self._at(index)
    return source[row]

  def labels(self, index: int) -> tuple[int, ...]:
    """The labels that the source of the example gives."""
    source, row = self._at(index)
    return source.labels(row)

  def name(self, index: int) -> str:
    """The name that the source of the example gives."""
    source, row = self._at(index)
    return source.name(row)

  def size(self, index: int) -> int:
    """As in the source of the example."""
    source, row = self._at(index)
    return source.size(row)

  def blocks(self) -> Iterator[Block]:
    """The blocks of all sources."""
    for source, end in zip(self._sources, self._ends, strict=True):
      for block in source.blocks():
        index = functools.partial(_mixed_index, block.index, end - len(source))
        yield block._replace(index=index)

  def _at(self, index: int) -> tuple[Source, int]:
    if not 0 <= index < len(self):
      raise IndexError(f"There is no example {index} among {len(self)}.")
    number = bisect.bisect_right(self._ends, index)
    source = self._sources[number]
    return source, index - self._ends[number] + len(source)


def _mixed_index(inner: Callable, first: int, rows: np.ndarray) -> np.ndarray:
  indices = inner(rows)
  return np.where(indices < 0, indices, indices + first)
