"""Everything that a run needs, worked out from its config: data, durations, mesh, model."""

import dataclasses
import functools

import jax
import optax

from vit_jax import models
from vit_jax.config import MOST_STEPS, Config, ConfigError, Duration
from vit_jax.config import Data as DataSettings
from vit_jax.data import cache, images, order, pipeline, sources
from vit_jax.data.apart import Use
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation import opening
from vit_jax.evaluation.opening import FewShot, Nearest
from vit_jax.learning import optim, state


@dataclasses.dataclass(frozen=True)
class Data:
  """The opened sources.

  Attributes:
    train: training; None where nothing is trained.
    evaluate: the sets that the head is scored on.
    classes: the classes that a set is scored among, where these are not all.
    few_shot, nearest: the evaluations that need no head.
  """

  train: sources.Source | None
  evaluate: dict[str, sources.Source]
  classes: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
  few_shot: dict[str, FewShot] = dataclasses.field(default_factory=dict)
  nearest: dict[str, Nearest] = dataclasses.field(default_factory=dict)

  def has_evaluations(self) -> bool:
    """Whether there is anything to evaluate on."""
    return bool(self.evaluate or self.few_shot or self.nearest)


@dataclasses.dataclass(frozen=True)
class Steps:
  """All durations of a run in steps; 0 means never."""

  total: int
  warmup: int
  log: int
  evaluate: int
  save: int
  keep: int


NO_STEPS = Steps(total=0, warmup=0, log=0, evaluate=0, save=0, keep=0)


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
  """Opens all sources of a training run; no device is touched.

  Raises:
    ConfigError: classes that do not agree with the config or with one another; images that are
      trained on and scored.
    SourceError: data that is not there.
  """
  key = "config.data.train"
  train = opening.open_named(key, config.data.train, config)
  trained = Use(key, config.data.train, train)
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
  evaluate = opening.open_sets(config)
  opening.check_classes(config, evaluate, train.class_names, "training")
  opening.check_apart(config, trained, evaluate)
  data = with_evaluations(config, evaluate, trained)
  return dataclasses.replace(data, train=cached(train, config))


def open_evaluations(config: Config, trained: Use | None) -> Data:
  """Opens what --mode=evaluate needs: all but the training data; no device is touched.

  Args:
    config: the settings.
    trained: what the parameters were trained on, if that is known.

  Raises:
    ConfigError: nothing to evaluate on, classes that do not agree with one another, or images that
      were trained on.
    SourceError: data that is not there.
  """
  evaluate = opening.open_sets(config)
  for first, source in list(evaluate.items())[:1]:
    opening.check_classes(config, evaluate, source.class_names, f"config.data.evaluate.{first}")
  if trained:
    opening.check_apart(config, trained, evaluate)
  data = with_evaluations(config, evaluate, trained)
  if not data.has_evaluations():
    name = next(iter(config.data.evaluate), "NAME")
    raise ConfigError(
      "No set of config.data.evaluate, config.few_shot or config.nearest has a source, so there is "
      f"nothing to evaluate on; give one, such as --config.data.evaluate.{name}.source=folder:DIR "
      "(or tfds:NAME, or objectnet:DIR)."
    )
  return data


def with_evaluations(config: Config, evaluate, trained: Use | None) -> Data:
  """The evaluations of a run, chosen from their sources."""
  return Data(
    train=None,
    evaluate=evaluate,
    classes=opening.counted_classes(config, evaluate),
    few_shot=opening.open_few_shot(config, trained),
    nearest=opening.open_nearest(config, trained),
  )


def cached(train: sources.Source, config: Config) -> sources.Source:
  """The training examples from the cache, where there is to be one.

  Raises:
    SourceError: it is not there, not complete or not of these images.
  """
  data = config.data
  if not data.cache:
    return train
  return cache.Cached(train, data.cache, side=data.cache_side, max_pixels=data.max_pixels)


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
  if result.total > MOST_STEPS:
    raise ConfigError(
      f"config.duration is {result.total:,} steps with config.batch_size={config.batch_size} and "
      f"{epoch_examples} training images; the most is {MOST_STEPS:,}."
    )
  if result.warmup > result.total:
    raise ConfigError(
      f"config.schedule.warmup is {result.warmup} steps, longer than the run of {result.total} "
      f"steps (config.duration with config.batch_size={config.batch_size} and {epoch_examples} "
      f"training images); the most is {result.total}."
    )
  return result


def nearest_multiple(number: int, of: int) -> int:
  """The multiple of `of` nearest to `number`, at least `of`; where either is 0, `number`."""
  return max(round(number / of), 1) * of if number and of else number


def make(config: Config, data: Data, devices=None, *, model=None) -> Plan:
  """The whole plan for all devices, or for `devices`; looks at them but computes nothing.

  Args:
    config: the settings.
    data: opened sources.
    devices: to compute on; None: all.
    model: Flax module; None: the one of config.model.

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
  model = models.configured(config.model) if model is None else model
  optimizer = optim.make(config.optimizer)
  steps = steps_of(config, len(data.train)) if data.train is not None else NO_STEPS
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
    sampling=plan.config.data.sampling,
    start_step=start_step,
    batch_size=plan.config.batch_size,
    **reading(plan),
  )


def train_transform(data: DataSettings):
  """What is done to every training image: (image, rng=generator) -> (S, S, 3) uint8."""
  common = dict(size=data.image_size, flip=data.flip, max_pixels=data.max_pixels)
  if data.train_resize:
    return functools.partial(images.train_square, resize=data.train_resize, **common)
  bounded = data.sampling != order.GRAIN
  return functools.partial(
    images.train_image, area=data.crop_area, aspect=data.crop_aspect, bounded=bounded, **common
  )


def evaluate_batches(plan: Plan, name: str):
  """This host's part of an evaluation set, in batches as large as a step's part."""
  data = plan.config.data
  transform = functools.partial(
    images.evaluate_image,
    size=data.image_size,
    resize=evaluation_resize(data, name),
    max_pixels=data.max_pixels,
  )
  return batches_once(plan, plan.data.evaluate[name], transform)


def evaluation_resize(data: DataSettings, name: str) -> int:
  """Pixels of the smaller side before the centre of an evaluation set's images is cut; 0: none."""
  own = data.evaluate[name].resize
  return data.evaluate_resize if own < 0 else round(own * data.image_size)


# Few-shot images are cut out of a square of 256 pixels for models that see 224.
SQUARE = 256 / 224


def feature_batches(plan: Plan, source: sources.Source):
  """This host's part of images whose features are wanted, in batches as large as a step's part."""
  data = plan.config.data
  transform = functools.partial(
    images.square_image,
    size=data.image_size,
    resize=round(data.image_size * SQUARE),
    max_pixels=data.max_pixels,
  )
  return batches_once(plan, source, transform)


def batches_once(plan: Plan, source: sources.Source, transform):
  """This host's part of a source, every image once."""
  return pipeline.evaluate_batches(
    source,
    transform=transform,
    batch_size=plan.config.batch_size // plan.config.accumulation,
    **reading(plan) | dict(num_classes=len(source.class_names)),
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


def total_count(plan: Plan) -> int:
  """Number of parameters, as scalars."""
  return sum(x.size for x in jax.tree.leaves(plan.abstract.params))


def trained_count(plan: Plan) -> int:
  """Number of those that config.optimizer.trainable matches."""
  trained = optim.trained(plan.abstract.params, plan.config.optimizer.trainable)
  return sum(x.size for x in jax.tree.leaves(trained))
