"""The state that training carries from one step to the next."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from vit_jax.devices import sharding
from vit_jax.devices.sharding import ALL_LARGEST, Rules
from vit_jax.learning import optim
from vit_jax.learning.objective import Objective


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
  """State after `step` updates.

  Attributes:
    step: int32 scalar.
    params: parameters, float32.
    optimizer: state of the optax chain; it has moments only for the trained parameters.
    ema: moving average of the trained parameters, with None for the others; or None.
    extra: state of the objective (`vit_jax.learning.objective.Objective`).
    bad_examples: int32 scalar, number of broken training images so far.
    skipped: int32 scalar, number of latest updates in a row skipped because they were not finite.
  """

  step: jax.Array
  params: dict
  optimizer: optax.OptState
  ema: dict | None
  extra: dict
  bad_examples: jax.Array
  skipped: jax.Array


def init(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  *,
  seed: int,
  image_size: int,
  with_ema: bool,
  trainable: str = ".*",
) -> TrainState:
  """A new state; meant to be traced by `create` or `jax.eval_shape`."""
  params = objective.init(jax.random.key(seed), image_size)
  trained = optim.partition(params, trainable)
  zero = jnp.zeros((), jnp.int32)
  ema = None
  if with_ema:
    ema = jax.tree.map(jnp.copy, trained)  # a copy, because donated buffers must not be shared
  return TrainState(
    step=zero,
    params=params,
    optimizer=optimizer.init(trained),
    ema=ema,
    extra=new_extra(objective, params),
    bad_examples=jnp.copy(zero),
    skipped=jnp.copy(zero),
  )


def new_extra(objective: Objective, params: dict) -> dict:
  """The `extra` of a new run; copied, because donated buffers must not be shared."""
  return jax.tree.map(jnp.copy, objective.begin(params))


def abstract(init_fn, mesh, rules: Rules = ALL_LARGEST) -> TrainState:
  """The shapes, types and shardings of the state, by rules; creates no arrays."""
  shapes = jax.eval_shape(init_fn)
  shardings = sharding.shardings(mesh, shapes, shapes.params, rules)
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
  )


def create(init_fn, abstract_state: TrainState) -> TrainState:
  """The state, created directly on its devices; no device ever holds more than its share."""
  shardings = jax.tree.map(lambda x: x.sharding, abstract_state)
  return jax.jit(init_fn, out_shardings=shardings)()


def for_evaluation(state: TrainState) -> dict:
  """The parameters for evaluation: the moving average for those that have one."""
  if state.ema is None:
    return state.params
  return optim.combine(state.ema, state.params)
