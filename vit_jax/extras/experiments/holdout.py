"""Checks a development split: disjoint from training and test, no class missing."""

import dataclasses
import itertools

import numpy as np

from vit_jax.config import Config, ConfigError, Dataset
from vit_jax.data import datasets, sources
from vit_jax.data.datasets import in_words
from vit_jax.evaluation import catalogue

# Larger training sets are not searched for missing classes: it would take long.
MAX_SEARCHED = 100_000


@dataclasses.dataclass(frozen=True)
class Role:
  """How a recipe uses a dataset: it "trains on" it or "scores" it."""

  recipe: str
  does: str
  dataset: Dataset
  config: Config

  def in_words(self) -> str:
    """As the beginning of a sentence."""
    return f"{self.recipe} {self.does} {in_words(self.dataset)}"


@dataclasses.dataclass(frozen=True)
class ScoredRun:
  """A recipe with its config, and the metric that scores it; "" if none does."""

  recipe: str
  config: Config
  metric: str

  def scores(self) -> list[Role]:
    """The sets on which the head is scored, and the test images of the metric."""
    scoring = self.metric.rpartition("/")[0]
    specs = catalogue.asked_for(self.config).items()
    sets = [spec.scored() for name, spec in specs if spec.scores_head or name == scoring]
    return [Role(self.recipe, "scores", dataset, self.config) for dataset in sets]

  def trains_on(self) -> list[Role]:
    """The sets that it trains on."""
    sets = self.config.data.training().values()
    return [Role(self.recipe, "trains on", dataset, self.config) for dataset in sets]


def check(trial: ScoredRun, tested: ScoredRun):
  """Checks that a trial may choose settings for a run that is tested.

  Raises:
    ConfigError: a training or development set shares images with a set that is scored later, or
      the trial has no image to train on for a class that the run has.
    SourceError: data is missing.
  """
  for run in (trial, tested):
    check_apart(run.trains_on(), run.scores())
  check_unseen(trial, tested)
  check_classes(trial.config, tested.config)


def check_unseen(trial: ScoredRun, tested: ScoredRun):
  """Checks that a trial neither trains on nor scores what another run scores; raises as `check`."""
  check_apart([*trial.trains_on(), *trial.scores()], tested.scores())


def check_apart(used: list[Role], scored: list[Role]):
  """Checks that sets used for training or for choosing share no image with scored sets.

  Raises:
    ConfigError: names an image that two sets have.
  """
  for use, kept in itertools.product(used, scored):
    both = datasets.shared_images(
      opened(use.dataset, use.config), opened(kept.dataset, kept.config)
    )
    if both:
      raise ConfigError(
        f"{use.in_words()}, and {kept.in_words()}, but both have {both.in_words()}; give parts "
        "that share no image."
      )


def opened(dataset: Dataset, config: Config) -> sources.Source:
  """A dataset as a recipe's run opens it."""
  return datasets.opener_of(config.data).source(dataset)


def check_classes(part: Config, whole: Config):
  """Checks that the training part has every class that the whole training set has.

  Raises:
    ConfigError: names a class that is missing.
  """
  images = training_source(part)
  lost = missing_classes(images)
  if lost:  # a class that the whole set lacks too is not lost by the split
    never = set(missing_classes(training_source(whole)))
    lost = [name for name in lost if name not in never]
  if lost:
    more = ""
    if len(lost) > 1:
      more = f" (and {len(lost) - 1} more)"
    raise ConfigError(
      f"The development part leaves class {lost[0]!r}{more} without an image to train on: "
      f"{' and '.join(map(in_words, part.data.training().values()))} has {len(images):,} images "
      "and none of this class; hold fewer images back."
    )


def training_source(config: Config) -> sources.Source:
  """The training data of a recipe."""
  opener = datasets.opener_of(config.data)
  return opener.training(config.data, labelled=False).source


def missing_classes(source: sources.Source) -> list[str]:
  """Names of the classes without images; reads labels until every class has appeared.

  Returns [] for more than `MAX_SEARCHED` images.
  """
  missing = set(range(len(source.class_names)))
  if len(source) > MAX_SEARCHED:
    return []
  for index in np.random.default_rng(0).permutation(
    len(source)
  ):  # in random order, every class appears soon
    missing -= set(source.labels(int(index)))
    if not missing:
      return []
  return [source.class_names[label] for label in sorted(missing)]
