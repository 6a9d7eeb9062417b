"""The interface of evaluations; `vit_jax.registry.EVALUATIONS` has a line for each kind.

A kind of evaluation is one file with two classes. The line in the registry names the first:

- an `EvaluationSpec`: the settings of config.evaluate.NAME, their checks, and the names of the
  metrics and their description in words;
- an `Evaluator`, which the spec opens: the images, and the computation on the devices.

Reading the settings of a run imports the files of its evaluations, so slow imports must be inside
`with epy.lazy_imports()`.
"""

import abc
import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

import numpy as np
from etils import epy

from vit_jax.config.data import Dataset, View
from vit_jax.config.fields import name_of_kind
from vit_jax.process.progress import SILENT, Count, NoProgress, Progress
from vit_jax.storage.paths import Path

with epy.lazy_imports():
  import jax

  from vit_jax.data import batches, datasets
  from vit_jax.data.sources import base
  from vit_jax.devices import mesh as meshes
  from vit_jax.process import agreement

Item = TypeVar("Item")


class EvaluationInterrupted(Exception):
  """An evaluation ended half-way, because the run was asked to stop."""


class NothingCounts(ValueError):
  """No image of a set counts."""


class UnreadError(ValueError):
  """A process could not read an image of its share."""


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

  def __post_init__(self):
    if self.curve not in ("loss", "accuracy", ""):
      raise ValueError(f"There is no plot {self.curve!r}; give loss, accuracy or an empty text.")

  def matches(self, name: str) -> bool:
    """Whether this is the metric called `name`."""
    return re.fullmatch(self.pattern, name) is not None


@dataclasses.dataclass(frozen=True)
class Result:
  """The result of an evaluation.

  Attributes:
    metrics: values by name, without the name of the evaluation.
    write: (folder) writes tables and images into the evaluation's own folder; None: there are none.
    pictures: (H, W, 3) uint8 by name; a run keeps those of every evaluation.
    note: a sentence that belongs to the metrics; "": none.
    dataset: the images that were scored, in words.
  """

  metrics: dict[str, float]
  write: Callable[[Path], None] | None = None
  pictures: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
  note: str = ""
  dataset: str = ""


@dataclasses.dataclass(frozen=True)
class RunData:
  """What a spec needs to open the images of its evaluation.

  Attributes:
    config: the run's settings.
    opener: opens sources, a `vit_jax.data.datasets.Opener`.
    trained: the datasets that the parameters were trained on, as far as they are known.
    classes: the class names of the training data, for the sets that the head is scored on; None:
      the head is not known yet.
  """

  config: object
  opener: object
  trained: Sequence = ()
  classes: Sequence[str] | None = None

  def check_fields(self, key: str, scored, needed: "Mapping[str, base.Field]"):
    """Checks that a dataset has the fields of pixels and the like that an evaluation needs.

    Args:
      key: config.evaluate.NAME.
      scored: the dataset, as it was opened.
      needed: the fields, as for `Reader.evaluation`.

    Raises:
      ConfigError: it lacks a field, or has it in another form.
    """
    base.check_fields(key, needed, {"image": View(self.config.data)})
    base.check_given_fields(key, needed, scored.source.fields, str(scored))

  def check_apart(self, scored, *trained):
    """Checks that no scored image is trained on, by the run or by the evaluation itself.

    Raises:
      ConfigError: one is, and config.data.allow_overlap is False.
    """
    datasets.check_leakage([*trained, *self.trained], scored, allow=self.opener.allow_overlap)


class Evaluator(abc.ABC):
  """An evaluation whose data is opened.

  Attributes:
    head: the dataset whose classes the head must have; None: the head is not scored.
  """

  head = None

  def of_head(self, names: Sequence[str]) -> "Evaluator":
    """The evaluation for a head whose outputs have these names.

    Raises:
      ConfigError: the head is scored, and lacks classes.
    """
    return self

  def with_settings(self, settings: "EvaluationSpec") -> "Evaluator":
    """The evaluation with these settings, which the weights have decided, as its `settings`."""
    if not hasattr(self, "settings"):
      return self
    return dataclasses.replace(self, settings=settings)

  def resizing_in_words(self, data) -> str:
    """How it resizes images, in words; "": as config.data (`data`) says."""
    del data
    return ""

  def lacks(self, metric: str) -> str:
    """Why it does not give a metric of `EvaluationSpec.names`; "": it gives it."""
    del metric
    return ""

  @abc.abstractmethod
  def score(self, context: "EvalContext", params) -> Result:
    """Evaluates parameters that are on the devices.

    Raises:
      EvaluationInterrupted: the run was asked to stop.
      BadImage, OSError: an image cannot be read.
      NothingCounts: no image counts.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSpec(abc.ABC):
  """The settings of an evaluation of some kind, config.evaluate.NAME.

  Attributes:
    kind: its name in the registry.
    metrics: the metrics that it may give, apart from counts and deviations; no other kind has a
      metric of this name.
    scores_head: whether it scores the model's head.
    resizes_itself: whether it resizes all images in its own way, not as config.data says.
  """

  metrics: ClassVar[tuple[Metric, ...]]
  scores_head: ClassVar[bool] = False
  resizes_itself: ClassVar[bool] = False

  kind: str = name_of_kind("", "what is measured")

  @abc.abstractmethod
  def datasets(self) -> Mapping[str, Dataset]:
    """Its datasets, by the name of their group; the last one holds the images that are scored."""

  @abc.abstractmethod
  def names(self, config) -> Sequence[str]:
    """The metrics that it gives in a run with this config, unless the data is of another sort.

    The data tells more than the config, such as the number of classes (`Evaluator.lacks`).
    """

  @abc.abstractmethod
  def open(self, key: str, data: RunData) -> Evaluator:
    """Opens the data; touches no device. `key` is config.evaluate.NAME, for messages.

    Raises:
      ConfigError: the data does not suit the settings or the run.
      SourceError: it is missing.
    """

  @staticmethod
  @abc.abstractmethod
  def in_words(metric: str, metrics: Mapping[str, float]) -> str:
    """All metrics of the evaluation in words, beginning with the headline metric `metric`.

    `metric` is another one if the evaluation gave no headline.
    """

  def check(self, key: str, config):
    """Checks relations between settings; `key` as for `open`.

    Raises:
      ConfigError: they contradict one another.
    """
    del key, config  # most kinds have none

  def scored(self) -> Dataset:
    """The images that are scored."""
    return list(self.datasets().values())[-1]

  def given(self) -> bool:
    """Whether all its datasets have a source; otherwise the evaluation is left out."""
    return all(dataset.source for dataset in self.datasets().values())


@dataclasses.dataclass(frozen=True)
class EvalContext:
  """The model and everything else that evaluations need to compute.

  Attributes:
    model: Flax module.
    loss: the run's settings of the loss.
    reader: reads batches, and knows the devices, a `vit_jax.data.batches.Reader`.
    stop: asked between batches; if it returns True, the evaluation ends.
    detailed: whether tables and pictures are wanted.
    name: the evaluation, as its progress names it.
    progress: shows how far the evaluations are.
  """

  model: object
  loss: object
  reader: object
  stop: Callable[[], bool] = lambda: False
  detailed: bool = False
  name: str = ""
  progress: Progress | NoProgress = SILENT
  _programs: dict = dataclasses.field(default_factory=dict)
  _compiled: set = dataclasses.field(default_factory=set)  # sets whose programs are compiled

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
      mesh = self.reader.mesh
      step = make_step(self.model, *settings)
      self._programs[key] = jax.jit(
        meshes.on(mesh, step), out_shardings=meshes.replicated(mesh), static_argnames=static
      )
    return self._programs[key]

  @contextlib.contextmanager
  def batches(self, read, part: str = "") -> Iterator[Iterator[dict]]:
    """Batches of the reader, on the devices; always closed at the end, also after an error.

    Args:
      read: the batches of this process, as the reader made them.
      part: names the set, if the evaluation has several.

    Raises:
      UnreadError: from the iterator, after the last batch, on all of several processes.
    """
    what = ".".join(filter(None, (self.name, part)))
    images = self.progress.images(what, read.images, compiles=what not in self._compiled)
    self._compiled.add(what)
    if jax.process_count() == 1:
      with self.reader.ahead(read) as ahead:
        yield self._until_stopped(ahead, images)
      return
    together = batches.InStep(read)
    with self.reader.ahead(together) as ahead:
      yield _all_read(self._until_stopped(ahead, images), together)

  def _until_stopped(self, batches, images: Count | NoProgress):
    dispatched = 0  # images of the batch before, which is done when the next one is: `one_behind`
    for batch in batches:
      self.raise_if_stopped()
      yield batch
      if dispatched:
        images.done(dispatched)
      dispatched = len(batch["mask"])

  def raise_if_stopped(self):
    """Call this wherever an evaluation may end half-way.

    Raises:
      EvaluationInterrupted: the run was asked to stop.
    """
    if self.stop():
      raise EvaluationInterrupted


def _all_read(batches, read: "batches.InStep") -> Iterator[dict]:
  yield from batches
  failures = agreement.allgather_str(read.failure)
  if failure := next(filter(None, failures), ""):
    raise UnreadError(failure)


def one_behind(results: Iterable[Item]) -> Iterator[Item]:
  """Yields each result after the next one has been dispatched, so that the devices never wait.

  Args:
    results: dispatches the work on a batch whenever its next item is taken.
  """
  waiting = []
  for result in results:
    yield from waiting
    waiting = [result]
  yield from waiting


def add(totals: dict[str, np.ndarray], sums: Mapping):
  """Adds one batch's sums to the totals, in place and in float64."""
  for name, value in jax.device_get(sums).items():
    totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
