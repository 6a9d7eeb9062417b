"""What every evaluation is made of; `registry.KINDS` lists those that there are."""

import abc
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax

from vit_jax.config import Config, Loss
from vit_jax.data.apart import Use
from vit_jax.data.batches import Reader
from vit_jax.data.opening import Opener
from vit_jax.devices import mesh as meshes


class GivenUp(Exception):
  """An evaluation was given up on the way, because the run was asked to stop."""


class NothingCounts(ValueError):
  """No image of a set counts."""


@dataclasses.dataclass(frozen=True)
class Figure:
  """A figure that evaluations give.

  Attributes:
    pattern: regex of its whole name, such as "top1".
    curve: "loss" or "accuracy", the plot that its curve is drawn in; "": it is not drawn.
    smaller_is_better: for early stopping; else it is better when it is larger.
    headline: whether it stands for the evaluation, so that `Kind.in_words` begins with it.
  """

  pattern: str
  curve: str = "accuracy"
  smaller_is_better: bool = False
  headline: bool = False

  def matches(self, name: str) -> bool:
    """Whether this is the figure called `name`."""
    return re.fullmatch(self.pattern, name) is not None


@dataclasses.dataclass(frozen=True)
class Result:
  """What an evaluation found.

  Attributes:
    figures: by name; the name of the evaluation is put before them later.
    write: writes tables and pictures into a folder of the evaluation's own; None: there are none.
  """

  figures: dict[str, float]
  write: Callable[[pathlib.Path], None] | None = None


@dataclasses.dataclass(frozen=True)
class Bench:
  """What evaluations compute with.

  Attributes:
    model: Flax module.
    loss: the run's.
    reader: reads batches, and knows the devices.
    stop: asked between batches; once True, the evaluation is given up.
    detailed: whether tables and pictures are wanted.
  """

  model: object
  loss: Loss
  reader: Reader
  stop: Callable[[], bool] = lambda: False
  detailed: bool = False
  _programs: dict = dataclasses.field(default_factory=dict)

  def compiled(self, make_step: Callable, *settings, static: tuple[str, ...] = ()) -> Callable:
    """The function `make_step(model, *settings)` for the devices, its results on every host.

    It is made once for the same arguments, whoever asks, and compiled at its first use.

    Args:
      make_step: a function of a module, so that it is always the same one.
      *settings: hashable.
      static: names of its arguments that it is compiled for.
    """
    key = make_step, settings
    if key not in self._programs:
      mesh, step = self.reader.mesh, make_step(self.model, *settings)
      self._programs[key] = jax.jit(
        meshes.on(mesh, step), out_shardings=meshes.replicated(mesh), static_argnames=static
      )
    return self._programs[key]

  @contextlib.contextmanager
  def batches(self, read) -> Iterator[Iterator[dict]]:
    """Batches of the reader on the devices; closed at the end, however that comes."""
    with self.reader.ahead(read) as ahead:
      yield self._until_stopped(ahead)

  def _until_stopped(self, batches):
    for batch in batches:
      self.go_on()
      yield batch

  def go_on(self):
    """Called wherever an evaluation may be given up.

    Raises:
      GivenUp: the run was asked to stop.
    """
    if self.stop():
      raise GivenUp


class Opened(abc.ABC):
  """An evaluation whose data is opened.

  Attributes:
    head: the dataset whose classes the head's outputs must be; None: the head is not scored.
  """

  head: Use | None = None

  @abc.abstractmethod
  def score(self, bench: Bench, params) -> Result:
    """Evaluates parameters that are on the devices.

    Raises:
      GivenUp: the run was asked to stop.
      BadImage, OSError: an image cannot be read.
      NothingCounts: no image counts.
    """


@dataclasses.dataclass(frozen=True)
class Kind:
  """A kind of evaluation; a run may have several of a kind, by name.

  Attributes:
    group: the settings that it is made of, such as "config.few_shot", for messages.
    settings: (config) -> {name: settings} of those that have all their sources.
    open: (settings, opener, trained, classes) -> {name: Opened}; touches no device. `trained` is
      the training data, if it is known; `classes` are those that it has, in a run that trains.
    figures: all that it may give.
    names: (settings of one) -> names of the figures that it always gives.
    in_words: (name of a headline figure, all figures of the evaluation) -> words.
  """

  group: str
  settings: Callable[[Config], Mapping[str, object]]
  open: Callable[[Mapping, Opener, Use | None, Sequence[str] | None], Mapping[str, Opened]]
  figures: tuple[Figure, ...]
  names: Callable[[object], Sequence[str]]
  in_words: Callable[[str, Mapping[str, float]], str]
