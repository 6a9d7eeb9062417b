"""The data of a training run, opened and checked before any device is touched."""

import dataclasses
import math

from vit_jax import models, weights
from vit_jax.config import Config, ConfigError
from vit_jax.config import Data as DataSettings
from vit_jax.config.reading import expanded
from vit_jax.data import apart, cache, described, opening, sources
from vit_jax.data.apart import Use
from vit_jax.data.history import History
from vit_jax.data.mixing import MixedSource
from vit_jax.data.opening import Training
from vit_jax.evaluation import opening as evaluation
from vit_jax.evaluation.opening import Evaluations
from vit_jax.learning import objectives


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """The opened data of a run.

  Attributes:
    train: the training data, without labels if the run needs none.
    evaluations: what the run evaluates on.
    parts: the number of examples and the weight of each source of the training data.
    earlier: what the parameters were trained on before, with other data than this.
    own: what this run trains them on.
    uses: the datasets of training and evaluation, as they were opened.
  """

  train: sources.Source
  evaluations: Evaluations
  parts: tuple[MixedSource, ...]
  earlier: History = ()
  own: History = ()
  uses: tuple[Use, ...] = ()


def open_data(config: Config, trained_on: History = ()) -> OpenedData:
  """Opens all sources of a training run; no device is touched.

  Args:
    config: the settings.
    trained_on: what the parameters that the run starts or resumes from were trained on.

  Raises:
    ConfigError: the classes do not agree with the config or with one another; labels are needed
      and missing; or images are both trained on and scored.
    SourceError: data is missing.
  """
  opener = opening.of_run(config.data, config.model.num_classes)
  model = models.configured(config.model.with_classes(1))
  labelled = objectives.configured(config, model).needs_labels
  training = opener.training(config.data, labelled=labelled)
  train = training.source
  if labelled and config.model.num_classes not in (0, len(train.class_names)):
    raise ConfigError(
      f"config.model.num_classes={config.model.num_classes}, but {training} has "
      f"{len(train.class_names)} classes; use --config.model.num_classes=0, which "
      "takes the number of the data." + " ".join(["", *described.notes(training.uses)])
    )
  if labelled and len(train.class_names) == 1 and not train.multi_label:
    raise ConfigError(
      f"{training} has one class, {train.class_names[0]!r}, so there is nothing to learn; give a "
      "folder with a folder for each class." + " ".join(["", *described.notes(training.uses)])
    )
  check_batch(config.batch_size, training)
  classes = train.class_names if labelled else None
  own = apart.record(training.uses)
  earlier = tuple(one for one in trained_on if one not in own)
  evaluations = evaluation.open_all(config, opener, training.uses, classes, earlier)
  train = cached(train, config.data)
  train = train if labelled else sources.Unlabelled(train)
  uses = (*training.uses, *evaluations.uses)
  return OpenedData(train, evaluations, training.parts, earlier, own, uses)


def history_of(place: str, step: int = 0) -> History:
  """What weights were trained on; () if it is not known.

  Args:
    place: config.init_from, or a workdir; "": no weights.
    step: which checkpoint of a workdir; 0: the newest.

  Raises:
    ConfigError: the file that tells it is damaged.
  """
  try:
    return weights.trained_on(expanded(place), step=step) if place else ()
  except (ValueError, OSError) as error:
    raise ConfigError(f"{place}: {error}") from error


def check_batch(size: int, training: Training):
  """Checks that no source has fewer images than a batch takes of it: it would hold them twice.

  Raises:
    ConfigError: a source is too small.
  """
  if size > len(training.source):
    raise ConfigError(
      f"config.batch_size={size} is more than the {len(training.source)} training images of "
      f"{training}; the most is {len(training.source)}."
    )
  weights = sum(part.weight for part in training.parts)
  for use, part in zip(training.uses, training.parts, strict=True):
    if size * part.weight > part.examples * weights:
      raise ConfigError(
        f"{use} has {part.examples} images, and a batch takes {size * part.weight / weights:.1f} "
        f"of them at {use.key}.weight={part.weight:g}; lower this weight, or make "
        f"config.batch_size at most {math.floor(part.examples * weights / part.weight)}."
      )


def cached(train: sources.Source, data: DataSettings) -> sources.Source:
  """The training examples, read from the cache if config.data.cache names one.

  Raises:
    SourceError: the cache is missing, not complete, or of other images.
  """
  if not data.cache:
    return train
  return cache.Cached(train, data.cache, side=data.cache_side, max_pixels=data.max_pixels)
