"""The interface of a format of weights."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from vit_jax.config import AUTO, Model, Size
from vit_jax.storage.paths import Path
from vit_jax.weights import card
from vit_jax.weights.card import Card


@dataclasses.dataclass(frozen=True)
class Weights:
  """Parameters, and what is known about them.

  Attributes:
    params: NumPy arrays, blocks unstacked.
    card: the model card, with the preparation of images and the classes; None: unknown.
    settings: for a checkpoint, the settings that its run recorded.
    step: of the checkpoint; 0: they are of none.
  """

  params: dict
  card: Card | None
  settings: dict | None = None
  step: int = 0

  def class_names(self) -> tuple[str, ...]:
    """Names of the head's outputs; () if they are unknown."""
    if self.card is None:
      return ()
    return self.card.class_names


class Heads(NamedTuple):
  """Attention heads, which arrays of other libraries do not show; 0: not known.

  Attributes:
    blocks: of the blocks.
    pooling: of attention pooling; 0: as many as the blocks have.
  """

  blocks: int = 0
  pooling: int = 0


NO_HEADS = Heads()


@dataclasses.dataclass(frozen=True)
class ArrayNames:
  """The names of another library for the arrays of its models: a line in the registry.

  Attributes:
    name: the name of the library.
    recognised: (names) -> whether they belong to the library.
    load: (arrays by name, attention heads, whether this project wrote the file, the size of images
      that it then tells or 0) -> our parameters; ValueError: this project has no such model.
    card: (path, our parameters, names) -> a card with what the library's models have in common.
    save: (our parameters, what is known of the architecture) -> arrays by name; ValueError: the
      library has no such model; None: these names are only read.
    notes: (our parameters, their card) -> notes for the user who exports them under these names;
      ValueError as for `save`.
    tables: pattern of the names of arrays of whole numbers that are no weights: tables that a model
      of this project computes, and counts of training.
  """

  name: str
  recognised: Callable[[Iterable[str]], bool]
  load: Callable[[dict, Heads, bool, Size], dict]
  card: Callable[[pathlib.Path, dict, Iterable[str]], Card]
  save: Callable[[dict, Model], dict] | None = None
  notes: Callable[[dict, Card], list[str]] = lambda params, card: []
  tables: str = "(?!)"


@dataclasses.dataclass(frozen=True)
class WeightFormat:
  """A format of weights: a module defines one, and a line of the registry names it.

  If several formats recognise a path, the first line wins. All functions may raise ValueError: the
  content does not have this format, or the format cannot express the model. Errors of `load` need
  not name the file.

  Attributes:
    words: the name of the format in messages.
    load: reads the parameters: a tree of NumPy arrays in float32, blocks unstacked.
    save: writes parameters with blocks unstacked, and in a folder their card, which may be None;
      None: this format can only be read.
    suffix: of its files; "": the format is a folder.
    recognises: whether an existing path has this format; None: the suffix decides.
    card: (path, parameters) -> the card of weights; with None for the parameters, only what is
      recorded. Default: the card beside the file.
    beside: names of files beside a weight file that `card` and `load` read too.
    notes: (parameters, their card) -> notes for the user who exports them.
    refusal: (path) -> why weights of the same library there cannot be read; "": there are none.
  """

  words: str
  load: Callable[[pathlib.Path], dict]
  save: Callable[[pathlib.Path, dict, Card | None], None] | None = None
  suffix: str = ""
  recognises: Callable[[pathlib.Path], bool] | None = None
  card: Callable[[pathlib.Path, dict | None], Card | None] = card.read_beside
  beside: tuple[str, ...] = ()
  notes: Callable[[dict, Card], list[str]] = lambda params, card: []
  refusal: Callable[[Path], str] = lambda path: ""

  def is_at(self, path: pathlib.Path) -> bool:
    """Whether the existing `path` has this format."""
    if self.recognises:
      return self.recognises(path)
    return path.suffix == self.suffix and path.is_file()


# Heads by width, where a head has not 64 channels, as in timm's models up to 1,024.
_HEADS = {64: 2, 96: 3} | dict.fromkeys((1152, 1280, 1408, 1664), 16)


def heads_in_timm(width: int) -> int:
  """The number of heads in timm's models of this width; 0 if they differ, or there are none."""
  heads = _HEADS.get(width, width // 64 if width <= 1024 else 0)
  if not heads or width % heads:
    return 0
  return heads


def heads_for_timm(model: Model) -> list[str]:
  """What timm must be told of a model with another number of heads than its models of this width.

  Args:
    model: config.model; where it leaves the width or the heads to a rule, nothing is known.
  """
  if AUTO in (model.width, model.heads) or model.heads in (0, heads_in_timm(model.width)):
    return []
  return [
    f"timm does not read the number of heads, {model.heads}, from a file: if its model has others, "
    f"give timm num_heads={model.heads}, beside embed_dim, depth and img_size where they differ."
  ]


def pooling_in_timm(model: Model, *, averages: bool = False, norm: str = "fc_norm") -> list[str]:
  """What timm must be told of a model whose arrays suit a head of the class token and of the mean.

  Args:
    model: config.model.
    averages: whether timm's class for this model takes the mean unless it is told otherwise.
    norm: the argument of timm's class that puts the final norm behind pooling.
  """
  kind = {"class_token": "token", "gap_beside_token": "avg"}.get(model.pool)
  if not kind or (kind == "token" and not averages):
    return []
  words = {"token": "the class token", "avg": "the mean of the patches"}
  pooled = model.final_norm == "pooled"
  return [f'Its head is for {words[kind]}: give timm global_pool="{kind}", {norm}={pooled}.']
