"""The data of a training run, opened and checked before any device is touched."""

import dataclasses

from vit_jax.config import Config, ConfigError
from vit_jax.config import Data as DataSettings
from vit_jax.data import cache, opening, sources
from vit_jax.evaluation import opening as evaluation
from vit_jax.evaluation.opening import Evaluations


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """What a run trains on and what it is evaluated on."""

  train: sources.Source
  evaluations: Evaluations


def open_data(config: Config) -> OpenedData:
  """Opens all sources of a training run; no device is touched.

  Raises:
    ConfigError: classes that do not agree with the config or with one another; images that are
      trained on and scored.
    SourceError: data that is not there.
  """
  opener = opening.of_run(config)
  trained = opener.use("config.data.train", config.data.train)
  train = trained.source
  if len(train.class_names) != config.model.num_classes:
    raise ConfigError(
      f"config.model.num_classes={config.model.num_classes}, but {config.data.train.source} has "
      f"{len(train.class_names)} classes; use --config.model.num_classes={len(train.class_names)}."
    )
  if config.batch_size > len(train):
    raise ConfigError(
      f"config.batch_size={config.batch_size} is more than the {len(train)} training images of "
      f"{config.data.train.source}; the most is {len(train)}."
    )
  evaluations = evaluation.open_all(config, opener, trained, classes=train.class_names)
  return OpenedData(cached(train, config.data), evaluations)


def cached(train: sources.Source, data: DataSettings) -> sources.Source:
  """The training examples from the cache, where there is to be one.

  Raises:
    SourceError: it is not there, not complete or not of these images.
  """
  if not data.cache:
    return train
  return cache.Cached(train, data.cache, side=data.cache_side, max_pixels=data.max_pixels)
