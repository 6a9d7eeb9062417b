"""A training run: everything it consists of, built in one place; computes nothing."""

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import optax

from vit_jax.config import AUTO, Config, ConfigError, Data, plugins, to_dict
from vit_jax.config.fields import switched_on
from vit_jax.data import datasets, identity, sources
from vit_jax.data.batches import Reader
from vit_jax.data.datasets import History, NamedDataset, Opener, Training
from vit_jax.data.identity import Identity
from vit_jax.data.order import MixedSource
from vit_jax.data.pipeline import DecodedCache
from vit_jax.data.sources import base
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation import evaluations as evaluation
from vit_jax.evaluation.evaluations import Evaluations
from vit_jax.learning import objective as objectives
from vit_jax.learning import optim, train_step
from vit_jax.learning.objective import Objective
from vit_jax.learning.train_step import TrainState
from vit_jax.process import program
from vit_jax.process.progress import SILENT, NoProgress, Progress
from vit_jax.process.text import listed
from vit_jax.registry import TRAINING_VIEWS
from vit_jax.training import steps as durations
from vit_jax.training.steps import START, ImageCount, Steps


@dataclasses.dataclass(frozen=True)
class Run:
  """A run that is ready to start or to go on.

  Attributes:
    config: the settings.
    data: opened sources.
    resume_point: the steps and images before this start of the run.
    changed: the settings that differ from those of the steps so far.
    seconds: estimated seconds for the steps and evaluations; None if not estimated.
    left: whether any step is left, by the record of the run.
    steps: durations.
    mesh: devices.
    reader: reads batches for the devices.
    model: Flax module.
    objective: what the model learns.
    optimizer: from gradients to changes of the parameters.
    init: () -> a fresh TrainState; traceable.
    abstract: shapes and shardings of the TrainState.
  """

  config: Config
  data: "OpenedData"
  resume_point: ImageCount
  steps: Steps
  mesh: jax.sharding.Mesh
  reader: Reader
  model: object
  objective: Objective
  optimizer: optax.GradientTransformation
  init: Callable[[], TrainState]
  abstract: TrainState
  changed: Sequence[str] = ()
  seconds: float | None = None
  left: bool = True

  @property
  def rate(self) -> optax.Schedule:
    """The learning rate, by the position in `steps.course`, as config.schedule says."""
    settings = self.config.schedule
    return optim.learning_rate_schedule(
      learning_rate=settings.learning_rate,
      warmup_steps=self.steps.course.warmup,
      total_steps=self.steps.course.total,
      decay=settings.decay,
      end_learning_rate=settings.end_learning_rate,
      drops=settings.drops,
    )

  @functools.cached_property
  def update(self) -> Callable:
    """The compiled update, (state, batch) -> (state, metrics); the old state is donated."""
    on_gpu = self.mesh.devices.flat[0].platform == "gpu"
    norms = train_step.BY_SHAPE if on_gpu else train_step.BY_ARRAY
    step = train_step.make(
      self.objective,
      self.optimizer,
      self.rate,
      self.config.optimizer,
      seed=self.config.seed,
      accumulation=self.config.parts,
      total=self.steps.course.total,
      position=self.steps.course.at,
      norms=norms,
    )
    return train_step.jit_step(step, mesh=self.mesh, abstract=self.abstract)

  @contextlib.contextmanager
  def compiling(self) -> Iterator[Callable]:
    """Compiles `update` in a thread, if any step is left; yields it, and its first call waits.

    JAX takes the compiled program for all calls with these shapes. What the compiler refuses is
    raised by the call, as it is without this.
    """
    if not self.left:
      yield self.update
      return
    with ThreadPoolExecutor(1, "compile") as threads:
      compiled = threads.submit(lambda: self.lowered().compile())

      def update(state, batch):
        compiled.exception()  # waits
        return self.update(state, batch)

      yield update

  def lowered(self) -> jax.stages.Lowered:
    """`update`, lowered for the shapes of the run."""
    return self.update.lower(self.abstract, self.abstract_batch())

  @contextlib.contextmanager
  def batches(self) -> Iterator[Iterator[dict]]:
    """The training batches after the images so far, on the devices ahead of their steps."""
    batches = self.reader.training(
      self.data.train,
      parts=self.data.parts,
      seed=self.config.seed,
      start=self.resume_point.images,
    )
    with self.reader.ahead(batches) as ahead:
      yield ahead

  def after(self, taken: ImageCount, changed: Sequence[str]) -> "Run":
    """The same run, resumed after these steps and images; `changed` lists changed settings."""
    since = taken.begun(self.config.batch_size)
    steps = durations.durations_in_steps(self.config, len(self.data.train), since)
    return dataclasses.replace(self, resume_point=since, steps=steps, changed=changed)

  def saved(self, state: TrainState) -> TrainState:
    """The part of a state, or of its shapes, that checkpoints hold."""
    return train_step.without_given(state, self.objective)

  def description(self) -> dict:
    """The description of the run that is saved in each checkpoint."""
    return {
      "config": to_dict(self.config),
      "class_names": list(self.data.train.class_names),
      "representation": self.config.objective.representation,
      "trained_on": datasets.history_as_dicts((*self.data.earlier, *self.data.current)),
      "images": list(self.resume_point),
      "total": self.steps.total,
      "data": {key: known._asdict() for key, known in self.data.identities.items()},
      "program": self.program(),
    }

  def program(self) -> dict[str, str]:
    """Everything besides settings and data that decides the run's numbers, such as versions."""
    return program.fingerprint(plugins.names_in(self.config.plugins))

  @property
  def attention(self) -> str:
    """How attention is computed, as config.model.attention; "" if the model has none."""
    if not getattr(self.model, "heads", 0):
      return ""
    return getattr(self.model, "attention", "")

  def abstract_batch(self) -> dict:
    """Shapes, types and shardings of a batch."""
    sharding = meshes.batch_sharding(self.mesh)
    size = self.config.batch_size
    named = {**self.reader.layout(self.data.train).fields, "mask": base.Field()}
    shape = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
    return {name: shape((size, *field.shape), field.dtype) for name, field in named.items()}

  @property
  def trainable(self) -> str:
    """The regex of the whole names of the parameters that are trained."""
    return self.objective.trainable(self.config.optimizer.trainable)

  def parameter_count(self) -> int:
    """Number of parameters; every scalar of an array counts."""
    return sum(x.size for x in jax.tree.leaves(self.abstract.params))

  def trained_count(self) -> int:
    """Number of the parameters that are trained."""
    trained = optim.partition(self.abstract.params, self.trainable)
    return sum(x.size for x in jax.tree.leaves(trained))


def make(config: Config, data: "OpenedData", devices=None, *, taken: ImageCount = START) -> Run:
  """The run on all devices, or on `devices`; looks at them but computes nothing.

  Args:
    config: the settings.
    data: opened sources.
    devices: the devices to compute on; None: all.
    taken: the steps that are done, and their images.

  Raises:
    ConfigError: the batch, the mesh or the attention does not suit the devices.
  """
  batching = dict(batch_size=config.batch_size, accumulation=config.parts)
  mesh = meshes.make(config.mesh, devices=devices, **batching)
  objective = objectives.of_config(config, mesh.devices.flat[0])
  since = taken.begun(config.batch_size)
  steps = durations.durations_in_steps(config, len(data.train), since)
  optimizer = optim.make(config.optimizer)
  init = functools.partial(
    train_step.init_state,
    objective,
    optimizer,
    seed=config.seed,
    image_size=config.data.image_size,
    with_ema=config.optimizer.averages,
    trainable=config.optimizer.trainable,
  )
  init = jax.jit(init)  # so that it is traced once, for the shapes and for the values
  return Run(
    config=config,
    data=data,
    resume_point=since,
    steps=steps,
    mesh=mesh,
    reader=Reader(
      config.data,
      mesh,
      objective=config.objective,
      channels=objective.model.channels,
      scored=data.evaluations.sizes,
      **batching,
    ),
    model=objective.model,
    objective=objective,
    optimizer=optimizer,
    init=init,
    abstract=train_step.abstract_state(
      init, mesh, (*config.objective.sharding, *objective.model.sharding)
    ),
  )


class TrainingView:
  """Replaces the training images that the run reads; `registry.TRAINING_VIEWS` lists the views."""

  @staticmethod
  def check(config: Config):
    """Refuses settings that the view does not support."""

  @staticmethod
  def view(source: sources.Source, data: Data) -> sources.Source:
    """The examples to read in place of the source's; never called if its switch is off."""
    del data
    return source


@dataclasses.dataclass(frozen=True)
class OpenedData:
  """The opened data of a run.

  Attributes:
    train: the training data, without labels if the run needs none.
    evaluations: what the run evaluates on.
    parts: the sources of the training data.
    earlier: what the parameters were trained on before, with other data than this.
    current: what this run trains them on.
    datasets: the opened datasets of training and evaluation.
    progress: shows how far the reading of `identities` is.
  """

  train: sources.Source
  evaluations: Evaluations
  parts: tuple[MixedSource, ...]
  earlier: History = ()
  current: History = ()
  datasets: tuple[NamedDataset, ...] = ()
  progress: Progress | NoProgress = SILENT

  @functools.cached_property
  def identities(self) -> dict[str, Identity]:
    """The identity of the images of each dataset, by the name of its setting."""
    return identity.of_all(self.datasets, self.progress)


def open_training(
  config: Config, progress: Progress | NoProgress = SILENT
) -> tuple[Training, Opener]:
  """Opens the training data, and returns the opener for the other data; no device is touched.

  `progress` shows what is opened, also by the opener.

  Raises:
    ConfigError: labels are missing, or sources of a mix have different classes.
    SourceError: data is missing.
  """
  opener = datasets.opener_of(config.data, progress)
  return opener.training(config.data, labelled=config.objective.needs_labels), opener


def open_data(
  config: Config, trained_on: History = (), opened: tuple[Training, Opener] | None = None
) -> OpenedData:
  """Opens all sources of a training run, and checks them; no device is touched.

  Args:
    config: the settings.
    trained_on: what the parameters that the run starts or resumes from were trained on.
    opened: the result of `open_training`, if that is open.

  Raises:
    ConfigError: the classes do not agree with the config or with one another; labels are needed
      and missing, or several where one is needed; or images are both trained on and scored.
    SourceError: data is missing.
  """
  training, opener = opened or open_training(config)
  labelled = config.objective.needs_labels
  train = training.source
  if labelled:
    _check_classes(config, training)
  config.objective.check_labels(str(training), train.multi_label)
  check_batch(config.batch_size, config.data.repeats, training)
  classes = train.class_names if labelled else None
  current = datasets.trained_history(training.datasets)
  earlier = tuple(known for known in trained_on if known not in current)
  evaluations = evaluation.open_all(config, opener, training.datasets, classes, earlier)
  check_stopping(config.early_stopping.metric, evaluations)
  check_fields(config, training)
  parts = training.parts
  if config.data.class_balanced:
    parts = datasets.class_balanced(training, threads=config.data.threads)
  for view in switched_on(TRAINING_VIEWS, config):
    train = view.view(train, config.data)
  if not labelled:
    train = sources.Unlabelled(train)
  train = DecodedCache(train, config.objective.fields(config.data), config.model.channels)
  all_datasets = (*training.datasets, *evaluations.datasets)
  return OpenedData(train, evaluations, parts, earlier, current, all_datasets, opener.progress)


def _check_classes(config: Config, training: Training):
  train = training.source
  if config.model.num_classes not in (AUTO, len(train.class_names)):
    raise ConfigError(
      f"config.model.num_classes={config.model.num_classes}, but {training} has "
      f"{len(train.class_names)} classes; use --config.model.num_classes={AUTO}, which "
      f"takes the number of the data.{_notes(training)}"
    )
  if len(train.class_names) == 1 and not train.multi_label:
    raise ConfigError(
      f"{training} has one class, {train.class_names[0]!r}, so there is nothing to learn; give a "
      f"folder with a folder for each class.{_notes(training)}"
    )


def _notes(training: Training) -> str:
  """The notes on the datasets, with a space before each."""
  return " ".join(["", *datasets.notes(training.datasets)])


def check_fields(config: Config, training: Training):
  """Checks that the training data has what the objective needs besides images and labels.

  Raises:
    ConfigError: the data lacks it, or an augmentation does not keep it.
  """
  needed = config.objective.fields(config.data)
  views = config.objective.views(config.data)
  asks = f"config.objective.kind={config.objective.kind}"
  base.check_fields(asks, needed, views)
  for named in training.datasets:
    base.check_given_fields(asks, needed, named.source.fields, str(named))
  dense = [name for name, field in needed.items() if field.dense]
  if not dense:
    return
  moving = [step.kind for step in views["image"].data.augment if step.moves_pixels]
  if moving:
    raise ConfigError(
      f"config.data.augment, as {asks} applies it, has {moving[0]}, which moves pixels, and their "
      f"values that it needs, {listed(dense)}, cannot follow; leave it out."
    )


def check_stopping(metric: str, evaluations: Evaluations):
  """Checks that the evaluations give the metric of early stopping, now that their data is open.

  Raises:
    ConfigError: they do not.
  """
  if reason := evaluations.lacks(metric):
    raise ConfigError(
      f"config.early_stopping.metric={metric!r} is not given, as {reason}; name another, such as "
      f"{metric.rpartition('/')[0]}/top1."
    )


def check_batch(size: int, repeats: int, training: Training):
  """Checks that no source has fewer images than a batch takes of it: some would come up twice.

  Args:
    size: images of a batch.
    repeats: how often a batch repeats each image on purpose.
    training: the sources.

  Raises:
    ConfigError: a source is too small.
  """
  most = len(training.source) * repeats
  if size > most:
    times = ""
    if repeats > 1:
      times = f", {repeats} times each"
    raise ConfigError(
      f"config.batch_size={size} is more than the {len(training.source)} training images of "
      f"{training}{times}; the most is {most}."
    )
  weights = sum(source.weight for source in training.parts)
  for named, source in zip(training.datasets, training.parts, strict=True):
    taken = size // repeats * source.weight / weights
    if taken > source.examples:
      largest = math.floor(source.examples * weights / source.weight) * repeats
      raise ConfigError(
        f"{named} has {source.examples} images, and a batch takes {taken:.1f} of them at "
        f"{named.key}.weight={source.weight:g}; lower this weight, or make config.batch_size at "
        f"most {largest}."
      )
