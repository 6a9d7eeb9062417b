"""The data of evaluations, opened and chosen from before any device is touched."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax import config as cfg
from vit_jax.config import Config, ConfigError
from vit_jax.data import apart, opening, sources
from vit_jax.data.apart import Use
from vit_jax.data.by_label import first_of_each_class, occurring_classes
from vit_jax.data.opening import Opener
from vit_jax.process.text import first_difference, shown


@dataclasses.dataclass(frozen=True)
class FewShot:
  """What a linear probe is fitted to and scored on.

  Attributes:
    settings: config.few_shot.NAME.
    train: all training images of any draw, each once.
    draws: (seeds, classes, most shots) places in `train`; the first k of a class are its k shots.
    test: the test images.
  """

  settings: cfg.FewShot
  train: sources.Source
  draws: np.ndarray
  test: sources.Source


@dataclasses.dataclass(frozen=True)
class Nearest:
  """Training images that vote on test images, as config.nearest.NAME (`settings`) says."""

  settings: cfg.Nearest
  train: sources.Source
  test: sources.Source


@dataclasses.dataclass(frozen=True)
class Evaluations:
  """All that a model is evaluated on, opened.

  Attributes:
    sets: those that the head is scored on.
    classes: the classes that a set is scored among, where these are not all.
    few_shot, nearest: the evaluations that need no head.
  """

  sets: dict[str, Use] = dataclasses.field(default_factory=dict)
  classes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
  few_shot: dict[str, FewShot] = dataclasses.field(default_factory=dict)
  nearest: dict[str, Nearest] = dataclasses.field(default_factory=dict)

  def __bool__(self) -> bool:
    return bool(self.sets or self.few_shot or self.nearest)

  def first_set(self) -> Use | None:
    """One of those that the head is scored on; all have the same classes."""
    return next(iter(self.sets.values()), None)


def open_all(
  config: Config, opener: Opener, trained: Use | None, classes: Sequence[str] | None = None
) -> Evaluations:
  """Opens all evaluations of a run that have a source; no device is touched.

  Args:
    config: the settings.
    opener: opens sources.
    trained: what the parameters are trained on, if that is known.
    classes: those of training, which all sets must have; None: they have the same, whichever.

  Raises:
    ConfigError: classes that do not agree, or images that are trained on.
    SourceError: data that is not there.
  """
  sets = {
    name: opener.use(f"config.data.evaluate.{name}", dataset)
    for name, dataset in config.data.evaluate.items()
    if dataset.source
  }
  check_classes(sets, classes)
  for scored in sets.values() if trained else ():
    apart.check(trained, scored, allow=opener.allow_overlap)
  return Evaluations(
    sets=sets,
    classes=counted_classes(sets, opener.threads),
    few_shot=open_few_shot(config.few_shot, opener, trained),
    nearest=open_nearest(config.nearest, opener, trained),
  )


def open_alone(config: Config, trained: Use | None) -> Evaluations:
  """As `open_all`, of what --mode=evaluate needs.

  Raises:
    ConfigError: also where there is nothing to evaluate on.
  """
  found = open_all(config, opening.of_run(config), trained)
  if not found:
    name = next(iter(config.data.evaluate), "NAME")
    raise ConfigError(
      "No set of config.data.evaluate, config.few_shot or config.nearest has a source, so there is "
      f"nothing to evaluate on; give one, such as --config.data.evaluate.{name}.source=folder:DIR "
      "(or tfds:NAME, or objectnet:DIR)."
    )
  return found


def check_classes(sets: Mapping[str, Use], classes: Sequence[str] | None):
  """Refuses evaluation sets whose classes are not those of training; None: of the first set.

  Raises:
    ConfigError: names the set and where the classes begin to differ.
  """
  whose = "training"
  for scored in sets.values():
    names = scored.source.class_names
    if classes is None:
      classes, whose = names, scored.key
    if tuple(names) != tuple(classes):
      raise ConfigError(
        f"{scored.key} ({scored.dataset.source}) has {len(names)} classes that are not the "
        f"{len(classes)} of {whose}: {first_difference(names, classes, whose)}."
      )


def counted_classes(sets: Mapping[str, Use], threads: int) -> dict[str, tuple[int, ...]]:
  """The classes that each set is scored among, where these are not all of them.

  They are those that occur in the set: a set of 200 of ImageNet's classes, such as ImageNet-A, has
  the names of all 1,000.

  Raises:
    ConfigError: they are not as many as the setting says.
    SourceError: labels cannot be read.
  """
  result = {}
  for name, (key, dataset, source) in sets.items():
    if not dataset.classes:
      continue
    result[name] = occurring_classes(source, threads=threads)
    if len(result[name]) != dataset.classes:
      raise ConfigError(
        f"{key}.classes={dataset.classes}, but {len(result[name])} classes occur in "
        f"{dataset.source}; give that number, or 0 for all classes."
      )
  return result


def open_few_shot(
  settings: Mapping[str, cfg.FewShot], opener: Opener, trained: Use | None
) -> dict[str, FewShot]:
  """The probes of config.few_shot that have both sources, their training images drawn.

  Args:
    settings: by name.
    opener: opens sources.
    trained: what the run trains on, if anything.

  Raises:
    ConfigError: shots that are not numbers of images, or as `open_pair`.
    SourceError: data that is not there, or fewer images of a class than shots.
  """
  result = {}
  for name, probe in settings.items():
    if not (probe.train.source and probe.test.source):
      continue
    key, most = f"config.few_shot.{name}", most_shots(probe, f"config.few_shot.{name}")
    train, test = open_pair(opener, probe, key, trained)
    try:
      draws = [
        first_of_each_class(train, count=most, seed=seed, threads=opener.threads)
        for seed in range(probe.seeds)
      ]
    except sources.SourceError as error:
      raise sources.SourceError(f"{key}.train ({probe.train.source}): {error}.") from error
    rows, places = np.unique(np.stack(draws), return_inverse=True)
    drawn = sources.Selected(train, sources.Listed(rows), f"{train.identity}, {key}")
    result[name] = FewShot(probe, drawn, places.reshape(np.shape(draws)), test)
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


def open_nearest(
  settings: Mapping[str, cfg.Nearest], opener: Opener, trained: Use | None
) -> dict[str, Nearest]:
  """The pairs of config.nearest that have both sources.

  Args:
    settings: by name.
    opener: opens sources.
    trained: what the run trains on, if anything.

  Raises:
    ConfigError: fewer images than neighbours, or as `open_pair`.
    SourceError: data that is not there.
  """
  result = {}
  for name, vote in settings.items():
    if not (vote.train.source and vote.test.source):
      continue
    key = f"config.nearest.{name}"
    train, test = open_pair(opener, vote, key, trained)
    if len(train) < vote.neighbours:
      raise ConfigError(
        f"{key}.neighbours={vote.neighbours} is more than the {len(train)} training images of "
        f"{vote.train.source}; the most is {len(train)}."
      )
    result[name] = Nearest(vote, train, test)
  return result


def open_pair(
  opener: Opener, settings, key: str, trained: Use | None
) -> tuple[sources.Source, sources.Source]:
  """The training and test source of a setting, whose classes agree.

  Raises:
    ConfigError: they do not, or an image may have several labels; or the test has images in common
      with the training source, or with what the run trains on.
  """
  trains = opener.use(f"{key}.train", settings.train)
  scored = opener.use(f"{key}.test", settings.test)
  train, test = trains.source, scored.source
  if tuple(train.class_names) != tuple(test.class_names):
    difference = first_difference(test.class_names, train.class_names, "training")
    raise ConfigError(f"{key}.test has other classes than {key}.train: {difference}.")
  for use in (trains, scored):
    if use.source.multi_label:
      raise ConfigError(
        f"{use.key} has any number of labels an image, and exactly one is needed; name another "
        "label_key or data set."
      )
  for use in filter(None, [trains, trained]):
    apart.check(use, scored, allow=opener.allow_overlap)
  return train, test
