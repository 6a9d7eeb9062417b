"""Opens the data of evaluations that have both training images and test images."""

from collections.abc import Mapping, Sequence

from vit_jax.config import ConfigError
from vit_jax.data import classes, leakage
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.data.sources import Source


def with_sources(settings: Mapping) -> dict:
  """The settings whose training set and test set both have a source."""
  return {name: one for name, one in settings.items() if one.train.source and one.test.source}


def open_pair(
  key: str, settings, opener: Opener, trained: Sequence[NamedDataset]
) -> tuple[Source, Source]:
  """The training and the test source of a setting, whose classes agree.

  Args:
    key: the setting, for messages.
    settings: with the datasets `train` and `test`.
    opener: opens sources.
    trained: the datasets that the run trains on, as far as they are known.

  Raises:
    ConfigError: the classes do not agree; an image may have several labels; or the test set shares
      images with the training source or with the data that the run trains on.
    SourceError: data is missing.
  """
  train = opener.labelled(f"{key}.train", settings.train)
  test = opener.labelled(f"{key}.test", settings.test)
  test = classes.matched(test, train.source.class_names, f"{key}.train")
  for named in (train, test):
    if named.source.multi_label:
      raise ConfigError(
        f"{named.key} has images with any number of labels, but each image must have exactly one; "
        "name another label_key or dataset."
      )
  leakage.check([train, *trained], test, allow=opener.allow_overlap)
  return train.source, test.source
