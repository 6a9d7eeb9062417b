"""What a way to store weights consists of."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable

from vit_jax.storage.paths import Path
from vit_jax.weights import card
from vit_jax.weights.card import Card


@dataclasses.dataclass(frozen=True)
class Weights:
  """Parameters, and what is known about them.

  Attributes:
    params: NumPy arrays, blocks unstacked.
    card: how images are prepared, and the classes; None: unknown.
    settings: for a checkpoint, the settings that its run recorded.
  """

  params: dict
  card: Card | None
  settings: dict | None = None

  def class_names(self) -> tuple[str, ...]:
    """Names of the head's outputs; () if they are unknown."""
    return self.card.class_names if self.card else ()


@dataclasses.dataclass(frozen=True)
class ArrayNames:
  """The names that another library gives the arrays of its models: a line in the registry.

  Attributes:
    name: what the library is called.
    recognised: (names) -> whether they are its.
    load: (arrays by name, attention heads or 0, whether this project wrote the file) -> our
      parameters; ValueError: they are of a model that is none of ours.
    save: (our parameters) -> arrays by name; ValueError: the library has no such model.
    card: (path, our parameters, names) -> what the library's models have in common.
  """

  name: str
  recognised: Callable[[Iterable[str]], bool]
  load: Callable[[dict, int, bool], dict]
  save: Callable[[dict], dict]
  card: Callable[[pathlib.Path, dict, Iterable[str]], Card]


@dataclasses.dataclass(frozen=True)
class WeightFormat:
  """One way to store weights: a file that ends in a `WeightFormat`, and a line in the registry.

  Of several that recognise a path, the first line counts. All may raise ValueError: the content is
  not of this format, or the format cannot express the model; errors of `load` need not name the
  file.

  Attributes:
    words: what is stored, for messages.
    load: reads the parameters: a tree of NumPy arrays in float32, blocks unstacked.
    save: writes parameters with blocks unstacked, and in a folder their card, which may be None;
      None: this format is only read.
    suffix: of its files; "": it is a folder.
    recognises: whether an existing path has this format; None: by the suffix.
    card: what is known about the weights at a path. Gets their parameters too, or None, for what
      is recorded alone. Default: what its card beside it says.
    beside: names of files beside a file of weights that `card` and `load` read too.
    notes: what whoever exports such parameters should know of the result.
    refusal: why weights of the same library at a path are not read; "": there are none.
  """

  words: str
  load: Callable[[pathlib.Path], dict]
  save: Callable[[pathlib.Path, dict, Card | None], None] | None = None
  suffix: str = ""
  recognises: Callable[[pathlib.Path], bool] | None = None
  card: Callable[[pathlib.Path, dict | None], Card | None] = card.read_beside
  beside: tuple[str, ...] = ()
  notes: Callable[[dict], list[str]] = lambda params: []
  refusal: Callable[[Path], str] = lambda path: ""

  def is_at(self, path: pathlib.Path) -> bool:
    """Whether the existing `path` has this format."""
    if self.recognises:
      return self.recognises(path)
    return path.suffix == self.suffix and path.is_file()
