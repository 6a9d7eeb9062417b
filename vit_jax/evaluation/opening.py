"""The data of evaluations, opened and chosen from before any device is touched."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from vit_jax import config as cfg
from vit_jax.config import Config, ConfigError, Dataset
from vit_jax.data import apart, sources
from vit_jax.data.apart import Use
from vit_jax.data.by_label import first_of_each_class, occurring_classes
from vit_jax.process.text import first_difference, shown


@dataclasses.dataclass(frozen=True)
class FewShot:
  """What a linear probe is fitted to and scored on.

  Attributes:
    train: all training images of any draw, each once.
    draws: (seeds, classes, most shots) places in `train`; the first k of a class are its k shots.
    test: the test images.
  """

  train: sources.Source
  draws: np.ndarray
  test: sources.Source


@dataclasses.dataclass(frozen=True)
class Nearest:
  """Training images that vote on test images."""

  train: sources.Source
  test: sources.Source


def open_source(dataset: Dataset, config: Config) -> sources.Source:
  """Opens one source; what is excluded is left out before the subset is taken."""
  source = sources.open_source(
    dataset.source,
    split=dataset.split,
    image_key=dataset.image_key,
    label_key=dataset.label_key,
    num_classes=config.model.num_classes,
    sampling=config.data.sampling,
  )
  if dataset.exclude:
    source = sources.Remaining(source, dataset.exclude)
  if dataset.subset:
    source = sources.Subset(source, dataset.subset, sampling=config.data.sampling)
  return source


def open_named(key: str, dataset: Dataset, config: Config) -> sources.Source:
  """As `open_source`; a message says which setting (`key`) it is about."""
  try:
    return open_source(dataset, config)
  except sources.SourceError as error:
    raise sources.SourceError(f"{key}: {error}") from error


def open_sets(config: Config) -> dict[str, sources.Source]:
  """The sets of config.data.evaluate that have a source.

  Raises:
    SourceError: data that is not there.
  """
  return {
    name: open_named(f"config.data.evaluate.{name}", dataset, config)
    for name, dataset in config.data.evaluate.items()
    if dataset.source
  }


def check_apart(config: Config, trained: Use, opened: Mapping[str, sources.Source]):
  """Refuses evaluation sets with images that are trained on, as `apart.check`."""
  for name, source in opened.items():
    scored = Use(f"config.data.evaluate.{name}", config.data.evaluate[name], source)
    apart.check(trained, scored, config)


def check_classes(config: Config, opened: Mapping[str, sources.Source], names, whose: str):
  """Refuses evaluation sets whose classes are not `names`, those of `whose` ("training").

  Raises:
    ConfigError: names the set and where the classes begin to differ.
  """
  for name, source in opened.items():
    if tuple(source.class_names) != tuple(names):
      raise ConfigError(
        f"config.data.evaluate.{name} ({config.data.evaluate[name].source}) has "
        f"{len(source.class_names)} classes that are not the {len(names)} of "
        f"{whose}: {first_difference(source.class_names, names, whose)}."
      )


def counted_classes(
  config: Config, opened: Mapping[str, sources.Source]
) -> dict[str, tuple[int, ...]]:
  """The classes that each set is scored among, where these are not all of them.

  They are those that occur in the set: a set of 200 of ImageNet's classes, such as ImageNet-A, has
  the names of all 1,000.

  Raises:
    ConfigError: they are not as many as the setting says.
    SourceError: labels cannot be read.
  """
  result = {}
  for name, source in opened.items():
    count = config.data.evaluate[name].classes
    if not count:
      continue
    result[name] = occurring_classes(source, threads=config.data.threads)
    if len(result[name]) != count:
      raise ConfigError(
        f"config.data.evaluate.{name}.classes={count}, but {len(result[name])} classes occur in "
        f"{config.data.evaluate[name].source}; give that number, or 0 for all classes."
      )
  return result


def open_few_shot(config: Config, trained: Use | None) -> dict[str, FewShot]:
  """The probes of config.few_shot that have both sources, their training images drawn.

  Args:
    config: the settings.
    trained: what the run trains on, if anything.

  Raises:
    ConfigError: shots that are not numbers of images, or as `open_pair`.
    SourceError: data that is not there, or fewer images of a class than shots.
  """
  result = {}
  for name, settings in config.few_shot.items():
    if not (settings.train.source and settings.test.source):
      continue
    key, most = f"config.few_shot.{name}", most_shots(settings, f"config.few_shot.{name}")
    train, test = open_pair(config, settings, key, trained)
    try:
      draws = [
        first_of_each_class(train, count=most, seed=seed, threads=config.data.threads)
        for seed in range(settings.seeds)
      ]
    except sources.SourceError as error:
      raise sources.SourceError(f"{key}.train ({settings.train.source}): {error}.") from error
    rows, places = np.unique(np.stack(draws), return_inverse=True)
    drawn = sources.Selected(train, sources.Listed(rows), f"{train.identity}, {key}")
    result[name] = FewShot(drawn, places.reshape(np.shape(draws)), test)
  return result


def most_shots(settings: cfg.FewShot, key: str) -> int:
  """The greatest number of shots.

  Raises:
    ConfigError: they are not positive whole numbers.
  """
  shots = settings.shots
  if not shots or any(type(k) is not int or k < 1 for k in shots) or len({*shots}) < len(shots):
    raise ConfigError(
      f"{key}.shots={shown(shots)} must be different numbers of images, such as (1, 5)."
    )
  return max(shots)


def open_nearest(config: Config, trained: Use | None) -> dict[str, Nearest]:
  """The pairs of config.nearest that have both sources.

  Args:
    config: the settings.
    trained: what the run trains on, if anything.

  Raises:
    ConfigError: fewer images than neighbours, or as `open_pair`.
    SourceError: data that is not there.
  """
  result = {}
  for name, settings in config.nearest.items():
    if not (settings.train.source and settings.test.source):
      continue
    key = f"config.nearest.{name}"
    train, test = open_pair(config, settings, key, trained)
    if len(train) < settings.neighbours:
      raise ConfigError(
        f"{key}.neighbours={settings.neighbours} is more than the {len(train)} training images of "
        f"{settings.train.source}; the most is {len(train)}."
      )
    result[name] = Nearest(train, test)
  return result


def open_pair(
  config: Config, settings, key: str, trained: Use | None
) -> tuple[sources.Source, sources.Source]:
  """The training and test source of a setting, whose classes agree.

  Raises:
    ConfigError: they do not, or an image may have several labels; or the test has images in common
      with the training source, or with what the run trains on.
  """
  train = open_named(f"{key}.train", settings.train, config)
  test = open_named(f"{key}.test", settings.test, config)
  if tuple(train.class_names) != tuple(test.class_names):
    difference = first_difference(test.class_names, train.class_names, "training")
    raise ConfigError(f"{key}.test has other classes than {key}.train: {difference}.")
  for part, source in (("train", train), ("test", test)):
    if source.multi_label:
      raise ConfigError(
        f"{key}.{part} has any number of labels an image, and exactly one is needed; name another "
        "label_key or data set."
      )
  scored = Use(f"{key}.test", settings.test, test)
  for use in filter(None, [Use(f"{key}.train", settings.train, train), trained]):
    apart.check(use, scored, config)
  return train, test
