"""The parts that every kind of evaluation has; `registry.SPECS` lists all kinds."""

import abc
import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

from vit_jax.config import Config, Loss
from vit_jax.data.batches import Reader
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.devices import mesh as meshes


class EvaluationInterrupted(Exception):
  """An evaluation was given up half-way, because the run was asked to stop."""


class NothingCounts(ValueError):
  """No image of a set counts."""


@dataclasses.dataclass(frozen=True)
class Metric:
  """A metric that evaluations give.

  Attributes:
    pattern: regex of its whole name, such as "top1".
    curve: "loss" or "accuracy", the plot that shows it; "": none.
    smaller_is_better: for early stopping; if False, larger is better.
    headline: whether it represents the evaluation: `EvaluationSpec.in_words` begins with it.
  """

  pattern: str
  curve: str = "accuracy"
  smaller_is_better: bool = False
  headline: bool = False

  def matches(self, name: str) -> bool:
    """Whether this is the metric called `name`."""
    return re.fullmatch(self.pattern, name) is not None


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of an evaluation.

  Attributes:
    metrics: values by name, without the name of the evaluation.
    write: (folder, caption) writes tables and plots into the evaluation's own folder; the caption
      says what they are of. None: there are none.
    pictures: (H, W, 3) uint8 by name; a run keeps those of every evaluation.
    note: a sentence that belongs to the metrics; "": none.
    dataset: the images that were scored, in words.
  """

  metrics: dict[str, float]
  write: Callable[[pathlib.Path, str], None] | None = None
  pictures: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  note: str = ""
  dataset: str = ""


@dataclasses.dataclass(frozen=True)
class EvalContext:
  """The model and all else that evaluations need to compute.

  Attributes:
    model: Flax module.
    loss: the run's settings of the loss.
    reader: reads batches, and knows the devices.
    representation: what evaluations without a head use if their settings do not say:
      "pre_logits" or "patches", as in `features.features_of`.
    stop: asked between batches; if it returns True, the evaluation is given up.
    detailed: whether tables and pictures are wanted.
  """

  model: object
  loss: Loss
  reader: Reader
  representation: str = "pre_logits"
  stop: Callable[[], bool] = lambda: False
  detailed: bool = False
  _programs: dict = dataclasses.field(default_factory=dict)

  def compiled(self, make_step: Callable, *settings, static: tuple[str, ...] = ()) -> Callable:
    """The jitted function `make_step(model, *settings)`; every host gets its whole result.

    Equal arguments give the same function, so that it is compiled only once.

    Args:
      make_step: a function at the top of a module, so that its identity stays the same.
      *settings: further arguments, hashable.
      static: names of static arguments of the function.
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
    """Batches of the reader, on the devices; always closed at the end, also after an error."""
    with self.reader.ahead(read) as ahead:
      yield self._until_stopped(ahead)

  def _until_stopped(self, batches):
    for batch in batches:
      self.raise_if_stopped()
      yield batch

  def raise_if_stopped(self):
    """Call this wherever an evaluation may be given up.

    Raises:
      EvaluationInterrupted: the run was asked to stop.
    """
    if self.stop():
      raise EvaluationInterrupted


class Evaluator(abc.ABC):
  """An evaluation whose data is opened.

  Attributes:
    head: the dataset whose classes the head must have; None: the head is not scored.
  """

  head: NamedDataset | None = None

  def of_head(self, names: Sequence[str]) -> "Evaluator":
    """The evaluation for a head whose outputs have these names.

    Raises:
      ConfigError: the head is scored, and lacks classes.
    """
    return self

  @abc.abstractmethod
  def score(self, context: EvalContext, params) -> Result:
    """Evaluates parameters that are on the devices.

    Raises:
      EvaluationInterrupted: the run was asked to stop.
      BadImage, OSError: an image cannot be read.
      NothingCounts: no image counts.
    """


@dataclasses.dataclass(frozen=True)
class EvaluationSpec:
  """A kind of evaluation; a run may have several evaluations of a kind, each with a name.

  Attributes:
    group: the group of its settings, such as "config.few_shot", for messages.
    settings: (config) -> {name: settings} of the evaluations that have all their sources.
    open: (settings, opener, trained, classes) -> {name: Evaluator}; touches no device. `trained`
      are the training datasets that are known; `classes` are their class names, in a run that
      trains.
    metrics: all metrics that it may give.
    names: (settings of one evaluation, number of the head's classes, 0 if not known yet) -> names
      of the metrics that it always gives.
    in_words: (name of a headline metric, all metrics of the evaluation) -> words.
  """

  group: str
  settings: Callable[[Config], Mapping[str, object]]
  open: Callable[
    [Mapping, Opener, Sequence[NamedDataset], Sequence[str] | None], Mapping[str, Evaluator]
  ]
  metrics: tuple[Metric, ...]
  names: Callable[[object, int], Sequence[str]]
  in_words: Callable[[str, Mapping[str, float]], str]
