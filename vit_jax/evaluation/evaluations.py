"""All evaluations of a run: their data, opened before any device is touched, and their results."""

import dataclasses
from collections.abc import Sequence

import jax

from vit_jax.config import Config, ConfigError, RunError
from vit_jax.data import datasets
from vit_jax.data.datasets import History, NamedDataset, Opener
from vit_jax.data.images import BadImage
from vit_jax.evaluation import catalogue
from vit_jax.evaluation.spec import (
  EvalContext,
  Evaluator,
  NothingCounts,
  Result,
  RunData,
  UnreadError,
)
from vit_jax.process.errors import NotFinite
from vit_jax.process.progress import SILENT, NoProgress, Progress

UNREADABLE = (BadImage, OSError, NotFinite, NothingCounts, UnreadError, ConfigError, RunError)


class NotScored(RunError):
  """An evaluation set cannot be scored; the message says which, and why."""


@dataclasses.dataclass(frozen=True)
class Evaluations:
  """All evaluations of a run.

  Attributes:
    evaluators: (name, evaluator), in the order of their metrics.
    datasets: all datasets that were opened for them.
  """

  evaluators: tuple[tuple[str, Evaluator], ...] = ()
  datasets: tuple[NamedDataset, ...] = ()

  def __bool__(self) -> bool:
    return bool(self.evaluators)

  @property
  def sizes(self) -> tuple[int, ...]:
    """The number of images of each dataset."""
    return tuple(len(named.source) for named in self.datasets)

  def heads(self) -> tuple[NamedDataset, ...]:
    """The datasets that the head is scored on."""
    return tuple(each.head for _, each in self.evaluators if each.head)

  def of_head(self, names: Sequence[str]) -> "Evaluations":
    """The evaluations of a head whose outputs have these names.

    Raises:
      ConfigError: a set has classes that the head does not have.
    """
    evaluators = tuple((name, each.of_head(names)) for name, each in self.evaluators)
    return Evaluations(evaluators, self.datasets)

  def lacks(self, key: str) -> str:
    """Why the metric `key`, such as "val/top1", is not given; as `Evaluator.lacks`."""
    whose, _, metric = key.rpartition("/")
    return "".join(each.lacks(metric) for name, each in self.evaluators if name == whose)

  def with_settings(self, config: Config) -> "Evaluations":
    """The evaluations with the settings of `config`, after the weights have decided them."""
    settings = config.evaluate
    evaluators = tuple((name, each.with_settings(settings[name])) for name, each in self.evaluators)
    return Evaluations(evaluators, self.datasets)


def open_all(
  config: Config,
  opener: Opener,
  trained: Sequence[NamedDataset],
  classes: Sequence[str] | None = None,
  earlier: History = (),
) -> Evaluations:
  """Opens all evaluations of a run that have their sources; no device is touched.

  Args:
    config: the settings.
    opener: opens sources.
    trained: the datasets that the run trains on.
    classes: class names of the training data, for the sets that the head is scored on; None: the
      head is not known yet.
    earlier: the datasets that the parameters were trained on before.

  Raises:
    ConfigError: the classes do not agree, or images to score are also trained on.
    SourceError: data is missing.
  """
  specs = catalogue.asked_for(config)
  if specs:
    trained = (*trained, *opener.earlier(earlier, trained))
  before = len(opener.opened)
  data = RunData(config, opener, trained, classes)
  evaluators = [(name, spec.open(f"config.evaluate.{name}", data)) for name, spec in specs.items()]
  return Evaluations(tuple(evaluators), tuple(opener.opened[before:]))


def open_alone(
  config: Config, trained_on: History, progress: Progress | NoProgress = SILENT
) -> Evaluations:
  """As `open_all`, for --mode=evaluate of weights that were trained on `trained_on`.

  `progress` shows what is opened.

  Raises:
    ConfigError: as `open_all`, or there is nothing to evaluate on.
  """
  opener = datasets.opener_of(config.data, progress)
  evaluations = open_all(config, opener, (), earlier=trained_on)
  if not evaluations:
    name = next(iter(config.evaluate), "NAME")
    raise ConfigError(
      "No set of config.evaluate has a source, so there is nothing to evaluate on; give one, such "
      f"as --config.evaluate.{name}.source=folder:DIR (or tfds:NAME, or objectnet:DIR)."
    )
  return evaluations


def score_all(evaluations: Evaluations, context: EvalContext, params) -> list[tuple[str, Result]]:
  """The name and the result of each evaluation, for parameters that are on the devices.

  Raises:
    EvaluationInterrupted: the run was asked to stop.
    NotScored: a set cannot be read, none of its images counts, or outputs are not finite.
  """
  return [(name, score(name, each, context, params)) for name, each in evaluations.evaluators]


def score_each(
  evaluations: Evaluations, context: EvalContext, params
) -> tuple[list[tuple[str, Result]], dict[str, str]]:
  """As `score_all`, for the evaluations that succeed, and {name: reason} for the others.

  Raises:
    EvaluationInterrupted: the run was asked to stop.
  """
  scored = []
  failed = {}
  for name, each in evaluations.evaluators:
    try:
      scored.append((name, score(name, each, context, params)))
    except NotScored as error:
      failed[name] = str(error)
  return scored, failed


def score(name: str, evaluator: Evaluator, context: EvalContext, params) -> Result:
  """The result of one evaluation; arguments and errors as for `score_all`."""
  context = dataclasses.replace(context, name=name)
  try:
    with jax.transfer_guard("disallow"):
      return evaluator.score(context, params)
  except UNREADABLE as error:
    raise NotScored(f"Evaluation set {name!r} cannot be scored: {error}") from error


def metrics_of(scored: list[tuple[str, Result]]) -> dict[str, float]:
  """All metrics of results as {"NAME/top1": ...}."""
  return {
    f"{name}/{key}": value for name, result in scored for key, value in result.metrics.items()
  }
