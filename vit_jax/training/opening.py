"""The data of a training run, opened and checked before any device is touched."""

import dataclasses

from vit_jax import models
from vit_jax.config import Config, ConfigError
from vit_jax.config import Data as DataSettings
from vit_jax.data import cache, opening, sources
from vit_jax.evaluation import opening as evaluation
from vit_jax.evaluation.opening import Evaluations
from vit_jax.learning import objectives


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """The training data of a run, without labels if it needs none, and its evaluations."""

  train: sources.Source
  evaluations: Evaluations


def open_data(config: Config) -> OpenedData:
  """Opens all sources of a training run; no device is touched.

  Raises:
    ConfigError: the classes do not agree with the config or with one another; labels are needed
      and missing; or images are both trained on and scored.
    SourceError: data is missing.
  """
  opener = opening.of_run(config.data, config.model.num_classes)
  labelled = objectives.configured(config, models.configured(config.model)).needs_labels
  use = opener.labelled if labelled else opener.use
  trained = use("config.data.train", config.data.train)
  train = trained.source
  if labelled and len(train.class_names) != config.model.num_classes:
    raise ConfigError(
      f"config.model.num_classes={config.model.num_classes}, but {config.data.train.source} has "
      f"{len(train.class_names)} classes; use --config.model.num_classes={len(train.class_names)}."
    )
  if config.batch_size > len(train):
    raise ConfigError(
      f"config.batch_size={config.batch_size} is more than the {len(train)} training images of "
      f"{config.data.train.source}; the most is {len(train)}."
    )
  classes = train.class_names if labelled else None
  evaluations = evaluation.open_all(config, opener, trained, classes)
  train = cached(train, config.data)
  return OpenedData(train if labelled else sources.Unlabelled(train), evaluations)


def cached(train: sources.Source, data: DataSettings) -> sources.Source:
  """The training examples, read from the cache if config.data.cache names one.

  Raises:
    SourceError: the cache is missing, not complete, or of other images.
  """
  if not data.cache:
    return train
  return cache.Cached(train, data.cache, side=data.cache_side, max_pixels=data.max_pixels)
