"""Everything that a run needs, worked out from its config: data, durations, mesh, model."""

import dataclasses
import functools

import jax
import optax

from vit_jax import mesh as meshes
from vit_jax import models, optim, state
from vit_jax.config import Config, ConfigError, Dataset, Duration
from vit_jax.config import Data as DataSettings
from vit_jax.data import cache, images, pipeline, sources


@dataclasses.dataclass(frozen=True)
class Data:
  """The opened sources: training, and one for each evaluation."""

  train: sources.Source
  evaluate: dict[str, sources.Source]


@dataclasses.dataclass(frozen=True)
class Steps:
  """All durations of a run in steps; 0 means never."""

  total: int
  warmup: int
  log: int
  evaluate: int
  save: int
  keep: int


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run, ready to start; nothing has been computed yet.

  Attributes:
    config: the settings.
    data: opened sources.
    steps: durations.
    mesh: devices.
    model: Flax module.
    optimizer: optax chain, without the learning rate.
    rate: step -> learning rate.
    init: () -> fresh TrainState, traceable.
    abstract: shapes and shardings of the TrainState.
  """

  config: Config
  data: Data
  steps: Steps
  mesh: jax.sharding.Mesh
  model: object
  optimizer: optax.GradientTransformation
  rate: optax.Schedule
  init: object
  abstract: state.TrainState


def open_data(config: Config) -> Data:
  """Opens all sources; no device is touched.

  Raises:
    ConfigError: classes that do not agree with the config or with one another.
    SourceError: data that is not there.
  """
  train = open_source(config.data.train, config)
  if len(train.class_names) != config.model.num_classes:
    raise ConfigError(
      f"config.model.num_classes={config.model.num_classes}, but {config.data.train.source} has "
      f"{len(train.class_names)} classes; use --config.model.num_classes={len(train.class_names)}."
    )
  evaluate = {
    name: open_source(dataset, config)
    for name, dataset in config.data.evaluate.items()
    if dataset.source
  }
  for name, source in evaluate.items():
    if tuple(source.class_names) != tuple(train.class_names):
      raise ConfigError(
        f"config.data.evaluate.{name} ({config.data.evaluate[name].source}) has "
        f"{len(source.class_names)} classes that are not the {len(train.class_names)} of "
        f"training: {first_difference(source.class_names, train.class_names)}."
      )
  return Data(train=cached(train, config), evaluate=evaluate)


def cached(train: sources.Source, config: Config) -> sources.Source:
  """The training examples from the cache, where there is to be one.

  Raises:
    SourceError: it is not there, not complete or not of these images.
  """
  data = config.data
  if not data.cache:
    return train
  return cache.Cached(train, data.cache, side=data.cache_side, max_pixels=data.max_pixels)


def open_source(dataset: Dataset, config: Config) -> sources.Source:
  """Opens one source; what is excluded is left out before the subset is taken."""
  source = sources.open_source(
    dataset.source,
    split=dataset.split,
    image_key=dataset.image_key,
    label_key=dataset.label_key,
    num_classes=config.model.num_classes,
  )
  if dataset.exclude:
    source = sources.Remaining(source, dataset.exclude)
  return sources.Subset(source, dataset.subset) if dataset.subset else source


def first_difference(some, others) -> str:
  """Where two lists of class names begin to differ, in words."""
  for i, (a, b) in enumerate(zip(some, others, strict=False)):
    if a != b:
      return f"class {i} is {a!r} there and {b!r} in training"
  return f"the first {min(len(some), len(others))} are equal"


def steps_of(config: Config, epoch_examples: int) -> Steps:
  """All durations in steps.

  Raises:
    ConfigError: the warm-up is longer than the run.
  """

  def steps(duration: Duration) -> int:
    return duration.in_steps(batch_size=config.batch_size, epoch_examples=epoch_examples)

  result = Steps(
    total=steps(config.duration),
    warmup=steps(config.schedule.warmup),
    log=steps(config.log_every),
    evaluate=steps(config.evaluate_every),
    save=steps(config.checkpoint.every),
    keep=nearest_multiple(steps(config.checkpoint.keep_every), steps(config.checkpoint.every)),
  )
  if result.warmup > result.total:
    raise ConfigError(
      f"config.schedule.warmup is {result.warmup} steps, longer than the run of "
      f"{result.total} steps (config.duration); the most is {result.total}."
    )
  return result


def nearest_multiple(number: int, of: int) -> int:
  """The multiple of `of` nearest to `number`, at least `of`; where either is 0, `number`."""
  return max(round(number / of), 1) * of if number and of else number


def make(config: Config, data: Data, devices=None) -> Plan:
  """The whole plan for all devices, or for `devices`; looks at them but computes nothing.

  Raises:
    ConfigError: the batch or the mesh does not suit the devices.
  """
  mesh = meshes.make(
    config.mesh,
    batch_size=config.batch_size,
    accumulation=config.accumulation,
    devices=devices,
  )
  check_devices(config, mesh.devices.flat[0].platform)
  model, optimizer = models.configured(config.model), optim.make(config.optimizer)
  steps = steps_of(config, len(data.train))
  rate = optim.schedule(
    learning_rate=config.schedule.learning_rate,
    warmup_steps=steps.warmup,
    total_steps=steps.total,
    decay=config.schedule.decay,
    end_learning_rate=config.schedule.end_learning_rate,
    drops=config.schedule.drops,
  )
  init = functools.partial(
    state.init,
    model,
    optimizer,
    seed=config.seed,
    image_size=config.data.image_size,
    with_ema=bool(config.optimizer.ema),
    trainable=config.optimizer.trainable,
  )
  return Plan(
    config=config,
    data=data,
    steps=steps,
    mesh=mesh,
    model=model,
    optimizer=optimizer,
    rate=rate,
    init=init,
    abstract=state.abstract(init, mesh),
  )


def check_devices(config: Config, platform: str):
  """The chosen attention runs on this platform, and what follows a failed save suits the hosts."""
  if config.checkpoint.on_failure == "go_on" and jax.process_count() > 1:
    raise ConfigError(
      "config.checkpoint.on_failure='go_on' is for a run of one process, and this one has "
      f"{jax.process_count()}; use --config.checkpoint.on_failure=stop."
    )
  if config.model.attention == "cudnn" and platform != "gpu":
    raise ConfigError(
      f"config.model.attention='cudnn' needs a GPU, and this is a {platform}; use "
      "--config.model.attention=xla."
    )


def train_batches(plan: Plan, start_step: int):
  """This host's part of the training batches, from `start_step` on, without end."""
  return pipeline.train_batches(
    plan.data.train,
    transform=train_transform(plan.config.data),
    seed=plan.config.seed,
    start_step=start_step,
    batch_size=plan.config.batch_size,
    **reading(plan),
  )


def train_transform(data: DataSettings):
  """What is done to every training image: (image, rng=generator) -> (S, S, 3) uint8."""
  common = dict(size=data.image_size, flip=data.flip, max_pixels=data.max_pixels)
  if data.train_resize:
    return functools.partial(images.train_square, resize=data.train_resize, **common)
  return functools.partial(
    images.train_image, area=data.crop_area, aspect=data.crop_aspect, **common
  )


def evaluate_batches(plan: Plan, name: str):
  """This host's part of an evaluation set, in batches as large as a step's part."""
  data = plan.config.data
  transform = functools.partial(
    images.evaluate_image,
    size=data.image_size,
    resize=data.evaluate_resize,
    max_pixels=data.max_pixels,
  )
  return pipeline.evaluate_batches(
    plan.data.evaluate[name],
    transform=transform,
    batch_size=plan.config.batch_size // plan.config.accumulation,
    **reading(plan),
  )


def reading(plan: Plan) -> dict[str, int]:
  """What training and evaluation batches are read with alike."""
  host, hosts = meshes.host_rows(plan.mesh, plan.config.batch_size)
  return dict(
    host=host,
    hosts=hosts,
    num_classes=plan.config.model.num_classes,
    threads=plan.config.data.threads,
    workers=plan.config.data.workers,
  )
