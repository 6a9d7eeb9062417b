"""The evaluations of a run, opened before any device is touched."""

import dataclasses
from collections.abc import Sequence

from vit_jax.config import Config, ConfigError
from vit_jax.data import datasets, sources
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.data.history import History
from vit_jax.evaluation import registry
from vit_jax.evaluation.spec import Evaluator


@dataclasses.dataclass(frozen=True)
class Evaluations:
  """All evaluations of a run.

  Attributes:
    opened: (name, opened evaluation), in the order of their metrics.
    datasets: all that were opened for them.
  """

  opened: tuple[tuple[str, Evaluator], ...] = ()
  datasets: tuple[NamedDataset, ...] = ()

  def __bool__(self) -> bool:
    return bool(self.opened)

  def heads(self) -> tuple[NamedDataset, ...]:
    """The datasets that the head is scored on."""
    return tuple(one.head for _, one in self.opened if one.head)

  def of_head(self, names: Sequence[str]) -> "Evaluations":
    """The evaluations of a head whose outputs have these names.

    Raises:
      ConfigError: a set has classes that the head does not have.
    """
    opened = tuple((name, one.of_head(names)) for name, one in self.opened)
    return Evaluations(opened, self.datasets)


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
    classes: class names of the training data, which sets that the head is scored on get; None:
      the head is not known yet.
    earlier: what the parameters were trained on before.

  Raises:
    ConfigError: the classes do not agree, or images are trained on.
    SourceError: data is missing.
  """
  asked = [(kind, kind.settings(config)) for kind in registry.SPECS]
  if any(settings for _, settings in asked):
    trained = (*trained, *opener.earlier(earlier))
  opened, before = [], len(opener.opened)
  for kind, settings in asked:
    opened += kind.open(settings, opener, trained, classes).items()
  return Evaluations(tuple(opened), tuple(opener.opened[before:]))


def open_alone(config: Config, trained_on: History) -> Evaluations:
  """As `open_all`, for --mode=evaluate of weights that were trained on `trained_on`.

  Raises:
    ConfigError: as `open_all`, or there is nothing to evaluate on.
  """
  opener = datasets.of_run(config.data)
  found = open_all(config, opener, (), earlier=trained_on)
  if not found:
    name = next(iter(config.data.evaluate), "NAME")
    *groups, last = (kind.group for kind in registry.SPECS)
    raise ConfigError(
      f"No set of {', '.join(groups)} or {last} has a source, so there is "
      f"nothing to evaluate on; give one, such as --config.data.evaluate.{name}.source=..., one of "
      f"{sources.forms()}."
    )
  return found
