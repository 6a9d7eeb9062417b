"""The plan of a training run, made from its config and its opened data; computes nothing."""

import dataclasses
import functools

import jax
import optax

from vit_jax import models
from vit_jax.config import Config, Schedule
from vit_jax.data.batches import Reader
from vit_jax.devices import mesh as meshes
from vit_jax.learning import objectives, optim, state, train_step
from vit_jax.learning.objective import Objective
from vit_jax.models import requirements
from vit_jax.training import steps as durations
from vit_jax.training.opening import OpenedData
from vit_jax.training.steps import START, ImageCount, Steps


@dataclasses.dataclass(frozen=True)
class Plan:
  """A run that is ready to start; nothing has been computed yet.

  Attributes:
    config: the settings.
    data: opened sources.
    steps: durations.
    mesh: devices.
    reader: reads batches for the devices.
    model: Flax module.
    objective: what the model learns.
    optimizer: optax chain, without the learning rate.
    rate: step -> learning rate.
    init: () -> fresh TrainState, traceable.
    abstract: shapes and shardings of the TrainState.
  """

  config: Config
  data: OpenedData
  steps: Steps
  mesh: jax.sharding.Mesh
  reader: Reader
  model: object
  objective: Objective
  optimizer: optax.GradientTransformation
  rate: optax.Schedule
  init: object
  abstract: state.TrainState


def make(config: Config, data: OpenedData, devices=None, begun: ImageCount = START) -> Plan:
  """The whole plan for all devices, or for `devices`; looks at them but computes nothing.

  Args:
    config: the settings.
    data: opened sources.
    devices: the devices to compute on; None: all.
    begun: the steps and images so far.

  Raises:
    ConfigError: the batch, the mesh or the attention does not suit the devices.
  """
  mesh = meshes.make(
    config.mesh,
    batch_size=config.batch_size,
    accumulation=config.accumulation,
    devices=devices,
  )
  model = models.configured(config.model)
  device = mesh.devices.flat[0]
  requirements.check_attention(model, config.data.image_size, device, training=True)
  objective = objectives.configured(config, model)
  steps = durations.of_run(config, len(data.train), begun)
  optimizer = optim.make(config.optimizer)
  init = functools.partial(
    state.init,
    objective,
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
    reader=Reader(config.data, mesh, config.batch_size, config.accumulation),
    model=model,
    objective=objective,
    optimizer=optimizer,
    rate=learning_rate(config.schedule, steps),
    init=init,
    abstract=state.abstract(init, mesh),
  )


def after(plan: Plan, begun: ImageCount) -> Plan:
  """The plan of a run that goes on after these steps and images."""
  steps = durations.of_run(plan.config, len(plan.data.train), begun)
  return dataclasses.replace(plan, steps=steps, rate=learning_rate(plan.config.schedule, steps))


def learning_rate(settings: Schedule, steps: Steps) -> optax.Schedule:
  """The learning rate of every step, as config.schedule says."""
  return optim.schedule(
    learning_rate=settings.learning_rate,
    warmup_steps=steps.warmup,
    total_steps=steps.total,
    decay=settings.decay,
    end_learning_rate=settings.end_learning_rate,
    drops=settings.drops,
  )


def jit_step(plan: Plan):
  """The compiled update of a plan: (state, batch) -> (state, metrics); the old state is donated."""
  config = plan.config
  step = train_step.make(
    plan.objective,
    plan.optimizer,
    plan.rate,
    config.optimizer,
    seed=config.seed,
    accumulation=config.accumulation,
  )
  return train_step.jit_step(step, mesh=plan.mesh, abstract=plan.abstract)


def total_count(plan: Plan) -> int:
  """Number of parameters; every scalar of an array counts."""
  return sum(x.size for x in jax.tree.leaves(plan.abstract.params))


def trained_count(plan: Plan) -> int:
  """Number of the parameters that config.optimizer.trainable matches."""
  trained = optim.trained(plan.abstract.params, plan.config.optimizer.trainable)
  return sum(x.size for x in jax.tree.leaves(trained))
