"""Opens sources according to a run's settings."""

import dataclasses
import logging
from collections.abc import Sequence
from typing import NamedTuple

from vit_jax.config import ConfigError, Data, Dataset
from vit_jax.data import sources
from vit_jax.data.apart import Use, in_words
from vit_jax.data.history import History
from vit_jax.data.order import MixedSource
from vit_jax.process.text import first_difference

_log = logging.getLogger(__name__)


class Training(NamedTuple):
  """The training data of a run.

  Attributes:
    uses: its datasets; more than one in a mix.
    source: their examples, one dataset after the other.
    parts: the number of examples and the weight of each dataset.
  """

  uses: tuple[Use, ...]
  source: sources.Source
  parts: tuple[MixedSource, ...]

  def __str__(self) -> str:
    return " and ".join(use.dataset.source for use in self.uses)


@dataclasses.dataclass(frozen=True)
class Opener:
  """Opens the datasets of a run, with the settings that they share.

  Attributes:
    num_classes: number of classes of the "synthetic" source.
    max_pixels: larger images count as broken, as config.data.max_pixels.
    threads: number of threads that read labels.
    allow_overlap: whether the same image may be used for training and evaluation.
    uses: what it opened by `use` so far, in order.
  """

  num_classes: int
  max_pixels: int
  threads: int
  allow_overlap: bool
  uses: list[Use] = dataclasses.field(default_factory=list)

  def source(self, dataset: Dataset) -> sources.Source:
    """Opens one source; drops its excluded examples first, and then takes the subset.

    Raises:
      SourceError: the data does not exist.
    """
    source = sources.open_source(
      dataset.source,
      split=dataset.split,
      image_key=dataset.image_key,
      label_key=dataset.label_key,
      num_classes=self.num_classes,
      max_pixels=self.max_pixels,
    )
    if dataset.exclude:
      source = sources.Remaining(source, dataset.exclude)
    if dataset.subset:
      source = sources.Subset(source, dataset.subset)
    return source

  def use(self, key: str, dataset: Dataset) -> Use:
    """Opens one source like `source`; messages name its setting, `key`."""
    try:
      self.uses.append(Use(key, dataset, self.source(dataset)))
    except sources.SourceError as error:
      raise sources.SourceError(f"{key}: {error}") from error
    return self.uses[-1]

  def labelled(self, key: str, dataset: Dataset) -> Use:
    """Opens one source like `use`, and requires labels.

    Raises:
      ConfigError: the setting says to read the dataset without labels.
      SourceError: the data does not exist.
    """
    if not dataset.label_key:
      raise ConfigError(
        f"{key}.label_key is empty, so these images have no labels, but labels are needed here; "
        "leave it out for a folder of classes (DIR/class/image.jpg), or name the TFDS feature that "
        "holds the label."
      )
    return self.use(key, dataset)

  def earlier(self, history: History) -> tuple[Use, ...]:
    """What weights were trained on before, as far as it is there; a warning names the rest."""
    found, lost = [], []
    for dataset, identity in history:
      try:
        source = self.source(dataset)
      except (ConfigError, OSError) as error:
        lost.append(f"{in_words(dataset)} ({error})")
        continue
      changed = source.identity != identity
      found.append(Use("What the weights were trained on", dataset, source, changed))
    if lost:
      _log.warning(
        "It cannot be checked whether images are scored that the weights were trained on: %s",
        "; ".join(lost),
      )
    return tuple(found)

  def training(self, data: Data, *, labelled: bool) -> Training:
    """Opens all training data.

    Args:
      data: the run's settings.
      labelled: whether labels are needed; if so, all sources must have the same classes.

    Raises:
      ConfigError: labels are missing, or sources of a mix have different classes.
      SourceError: the data does not exist.
    """
    open_one = self.labelled if labelled else self.use
    uses = tuple(open_one(key, dataset) for key, dataset in data.training().items())
    if labelled:
      check_same_classes(uses)
    opened = [use.source for use in uses]
    weights = [one.weight for one in data.mixed().values()] or [1.0]
    parts = tuple(
      MixedSource(len(one), weight) for one, weight in zip(opened, weights, strict=True)
    )
    return Training(uses, opened[0] if len(opened) == 1 else sources.Mixed(opened), parts)


def check_same_classes(uses: Sequence[Use]):
  """Checks that all datasets have the classes and the kind of labels of the first.

  Raises:
    ConfigError: names the dataset and the first class that differs.
  """
  first, *others = uses
  names = first.source.class_names
  for use in others:
    if tuple(use.source.class_names) != tuple(names):
      raise ConfigError(
        f"{use} has {len(use.source.class_names)} classes that are not the {len(names)} of "
        f"{first}: {first_difference(use.source.class_names, names, first.key)}; classification "
        "needs sources with the same classes."
      )
    if use.source.multi_label != first.source.multi_label:
      several = use if use.source.multi_label else first
      raise ConfigError(
        f"Images of {several} have any number of labels, and those of "
        f"{first if several is use else use} exactly one; classification needs sources with the "
        "same kind of labels."
      )


def of_run(data: Data, num_classes: int) -> Opener:
  """The opener of a run's datasets; the "synthetic" source gets `num_classes`."""
  return Opener(
    num_classes=num_classes,
    max_pixels=data.max_pixels,
    threads=data.threads,
    allow_overlap=data.allow_overlap,
  )
