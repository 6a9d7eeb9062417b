"""Checks a development split: disjoint from training and test, no class missing."""

import dataclasses

import numpy as np

from vit_jax.config import Config, ConfigError, Dataset
from vit_jax.data import opening, overlap, sources
from vit_jax.data.apart import in_words

# Larger training sets are not searched for missing classes: it would take long.
LOOKED_AT = 100_000


@dataclasses.dataclass(frozen=True)
class Role:
  """The use of a dataset by a recipe, which "trains on" it or "scores" it."""

  recipe: str
  does: str
  dataset: Dataset
  config: Config

  def in_words(self) -> str:
    """As the beginning of a sentence."""
    return f"{self.recipe} {self.does} {in_words(self.dataset)}"


def check_configs(trial: tuple[str, Config], tested: tuple[str, Config]):
  """Checks that a pair of recipes has a development split that settings can be chosen on.

  Args:
    trial: recipe that trains on a part of the training set and scores the rest; its config.
    tested: recipe that trains on all of it and scores the test set; its config.

  Raises:
    ConfigError: a recipe scores no set; the first scores more than one; a training or development
      set shares images with a set that is scored later; or the development split leaves a class
      without training images.
    SourceError: data is missing.
  """
  (development, part), (final, whole) = trial, tested
  held_back = Role(development, "scores", only(development, scored(part)), part)
  tests = [Role(final, "scores", dataset, whole) for dataset in some(final, scored(whole))]
  for dataset in part.data.training().values():
    for kept in (held_back, *tests):
      check_apart(Role(development, "trains on", dataset, part), kept)
  for test in tests:
    check_apart(held_back, test)
    for dataset in whole.data.training().values():
      check_apart(Role(final, "trains on", dataset, whole), test)
  check_classes(part, whole)


def scored(config: Config) -> list[Dataset]:
  """The sets that a recipe scores."""
  return [dataset for dataset in config.data.evaluate.values() if dataset.source]


def only(recipe: str, sets: list[Dataset]) -> Dataset:
  """The one set that a recipe scores, which settings are chosen by.

  Raises:
    ConfigError: there is none, or more than one.
  """
  if len(sets) != 1:
    raise ConfigError(
      f"{recipe} scores {len(sets)} sets (config.data.evaluate); give a recipe that scores one."
    )
  return sets[0]


def some(recipe: str, sets: list[Dataset]) -> list[Dataset]:
  """The sets that a recipe scores.

  Raises:
    ConfigError: there is none.
  """
  if not sets:
    raise ConfigError(
      f"{recipe} scores 0 sets (config.data.evaluate); give a recipe that scores the test set."
    )
  return sets


def check_apart(use: Role, kept: Role):
  """Checks that a set used for training or for choosing shares no image with a scored set.

  Raises:
    ConfigError: names an image that both sets have.
  """
  found = overlap.shared(*(opened(each.dataset, each.config) for each in (use, kept)))
  if found:
    raise ConfigError(
      f"{use.in_words()}, and {kept.in_words()}, but both have {found.in_words()}; give parts that "
      "share no image."
    )


def opened(dataset: Dataset, config: Config) -> sources.Source:
  """A dataset as a recipe's run opens it."""
  return opening.of_run(config.data, config.model.num_classes).source(dataset)


def check_classes(part: Config, whole: Config):
  """Checks that the training part has every class that the whole training set has.

  Raises:
    ConfigError: names a class that is missing.
  """
  images = trained(part)
  lost = missing_classes(images)
  if lost:  # a class that the whole set lacks too is not lost by the split
    never = set(missing_classes(trained(whole)))
    lost = [name for name in lost if name not in never]
  if lost:
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    raise ConfigError(
      f"The development part leaves class {lost[0]!r}{more} without an image to train on: "
      f"{' and '.join(map(in_words, part.data.training().values()))} has {len(images):,} images "
      "and none of this class; hold fewer images back."
    )


def trained(config: Config) -> sources.Source:
  """The training data of a recipe."""
  opener = opening.of_run(config.data, config.model.num_classes)
  return opener.training(config.data, labelled=False).source


def missing_classes(source: sources.Source) -> list[str]:
  """Names of the classes without images; reads labels until every class has appeared.

  Returns [] for more than `LOOKED_AT` images.
  """
  missing = set(range(len(source.class_names)))
  if len(source) > LOOKED_AT:
    return []
  for index in np.random.default_rng(0).permutation(len(source)):  # soon some of every class
    missing -= set(source.labels(int(index)))
    if not missing:
      return []
  return [source.class_names[label] for label in sorted(missing)]
