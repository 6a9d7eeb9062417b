"""The state of training, and one update of it: loss, gradients, accumulation, clipping, average."""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vit_jax.config import Optimizer, Size
from vit_jax.config.learning import ALL
from vit_jax.devices import mesh as meshes
from vit_jax.devices.mesh import ALL_LARGEST, Rules
from vit_jax.learning import optim
from vit_jax.learning.objective import PREFIX, Objective


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
    skipped: int32 scalar, number of updates in a row, up to the latest, skipped as not finite.
  """

  step: jax.Array
  params: dict
  optimizer: optax.OptState
  ema: dict | None
  extra: dict
  bad_examples: jax.Array
  skipped: jax.Array


def init_state(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  *,
  seed: int,
  image_size: Size,
  with_ema: bool,
  trainable: str = ALL,
) -> TrainState:
  """A new state; meant to be traced by `create_state` or `jax.eval_shape`."""
  params = objective.init(jax.random.key(seed), image_size)
  trained = optim.partition(params, objective.trainable(trainable))
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
  """The `extra` of a new run, with zeros for what the objective is given.

  It is copied, because donated buffers must not be shared.
  """
  given = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), objective.given())
  return jax.tree.map(jnp.copy, objective.begin(params)) | given


def without_given(state: TrainState, objective: Objective) -> TrainState:
  """The part of a state, or of its shapes, that is saved."""
  given = objective.given()
  extra = {name: tree for name, tree in state.extra.items() if name not in given}
  return dataclasses.replace(state, extra=extra)


def with_given(state: TrainState, objective: Objective, abstract: TrainState) -> TrainState:
  """The whole state, of shapes and shardings `abstract`, from the part that is saved."""
  given = {
    name: jax.tree.map(lambda x, like: meshes.place(x, like.sharding), tree, abstract.extra[name])
    for name, tree in objective.given().items()
  }
  return dataclasses.replace(state, extra=state.extra | given)


def abstract_state(init_fn, mesh, rules: Rules = ALL_LARGEST) -> TrainState:
  """The shapes, types and shardings of the state, by rules; creates no arrays."""
  shapes = jax.eval_shape(init_fn)
  shardings = meshes.shardings(mesh, shapes, shapes.params, rules)
  return jax.tree.map(
    lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
  )


def create_state(init_fn, abstract_state: TrainState) -> TrainState:
  """The state, created directly on its devices; no device ever holds more than its share."""
  shardings = jax.tree.map(lambda x: x.sharding, abstract_state)
  return jax.jit(init_fn, out_shardings=shardings)()


def for_evaluation(state: TrainState) -> dict:
  """The parameters for evaluation: the moving average for those that have one."""
  if state.ema is None:
    return state.params
  return optim.combine(state.ema, state.params)


# The number of parameters in one kernel that computes the norm of an update. XLA's kernels for GPUs
# take at most 96 arrays, and this one takes gradient, parameter and two moments of each parameter.
TOGETHER = 12


class Norms(NamedTuple):
  """How a step computes its norms; results differ only by rounding.

  Attributes:
    norm: (tree of arrays) -> the global norm, a float32 scalar.
    applied: (update, state, norm of a change) -> the state after the update, and the update's norm.
      `update` maps the state before to the state after, and may be called twice.
  """

  norm: Callable
  applied: Callable


def norm_by_shape(tree) -> jax.Array:
  """The global norm of a tree, in about as many kernels as its arrays have shapes.

  The squares of arrays with the same shape are added elementwise, and then summed. Arrays with the
  same shape are almost always split over the devices in the same way, so nothing is moved.
  """
  alike = collections.defaultdict(list)
  for x in jax.tree.leaves(tree):
    alike[x.shape].append(jnp.square(x))
  groups = [
    group[first : first + TOGETHER]
    for group in alike.values()
    for first in range(0, len(group), TOGETHER)
  ]
  return jnp.sqrt(sum(jnp.sum(functools.reduce(jnp.add, group)) for group in groups))


def apply_then_measure(update: Callable, state: TrainState, change: Callable):
  """Applies an update, and then computes its norm; as `Norms.applied`."""
  after = update(state)
  return after, change(after)


def measure_then_apply(update: Callable, state: TrainState, change: Callable):
  """Computes the norm first, from an update that is never written; as `Norms.applied`.

  The norm needs the old parameters. Once it is known, the new ones can be written in their place,
  without a copy.
  """
  state, norm = jax.lax.optimization_barrier((state, change(update(state))))
  return update(state), norm


BY_ARRAY = Norms(optax.tree.norm, apply_then_measure)
BY_SHAPE = Norms(norm_by_shape, measure_then_apply)  # for GPUs, where every kernel costs a launch


def make(
  objective: Objective,
  optimizer: optax.GradientTransformation,
  rate: optax.Schedule,
  settings: Optimizer,
  *,
  seed: int,
  accumulation: int,
  total: int = 0,
  position: Callable = lambda step: step,
  norms: Norms = BY_ARRAY,
):
  """The function (state, batch) -> (state, metrics) of a run; pure.

  The batch has the form that `Objective.prepare` takes. Metrics are scalars: loss (mean over the
  examples that count), learning_rate, grad_norm (before clipping), param_norm, update_norm (norm
  of the change of the parameters), bad_examples and skipped (see TrainState), and the metrics of
  the objective.

  If the loss or the norm of the gradient is not finite, the update is skipped: only the counters
  of the state change. This is known before the update begins, so parameters and moments are read
  and written once.

  If config.optimizer.trainable excludes parameters, gradient, norms of gradient and update,
  clipping and decay cover the trained parameters only.

  Args:
    objective: what is learnt.
    optimizer: `optim.make` of `settings`.
    rate: position of the step -> learning rate.
    settings: config.optimizer.
    seed: root of all randomness.
    accumulation: parts of the batch that are computed one after another.
    total: where the run ends, for what changes with its progress; 0: unknown, progress stays 0.
    position: number of steps before -> where the step lies in the schedules and in `total`.
    norms: how norms are computed.
  """
  pattern = objective.trainable(settings.trainable)
  trained = functools.partial(optim.partition, pattern=pattern)
  norm = norms.norm
  applied = norms.applied
  if not settings.elementwise:  # too expensive to be computed twice
    applied = apply_then_measure

  def step(state: TrainState, batch) -> tuple[TrainState, dict[str, jax.Array]]:
    # The key depends only on the seed and the step, so resumed runs draw the same numbers.
    key = jax.random.fold_in(jax.random.key(seed), state.step)
    before = trained(state.params)
    place = position(state.step)
    progress = progress_at(place, total)
    extra = extra_seen(objective, state, progress)
    sums_of = functools.partial(loss_and_grads, objective, state.params, extra)
    prepared = objective.prepare(batch, key)
    loss, grads, metrics, statistics = means(sums_of, before, prepared, key, accumulation)
    given = dict(grad_norm=norm(grads), learning_rate=rate(place))
    if settings.end_weight_decay:
      given["weight_decay"] = optim.cosine(
        settings.weight_decay, settings.end_weight_decay, progress
      )
    finite = jnp.isfinite(loss) & jnp.isfinite(given["grad_norm"])

    def following(state: TrainState) -> TrainState:
      before = trained(state.params)
      params, *others = updated(
        objective, optimizer, settings, state, before, grads, given, progress
      )
      extra = objective.after_update(optim.combine(params, state.params), state.extra, statistics)
      return apply_if_finite(state, before, (params, *others, extra), finite, batch["mask"])

    def change(after: TrainState) -> jax.Array:
      return norm(jax.tree.map(jnp.subtract, trained(after.params), before))

    after, update_norm = applied(following, state, change)
    measured = dict(param_norm=norm(after.params), update_norm=update_norm)
    counters = dict(bad_examples=after.bad_examples, skipped=after.skipped)
    return after, dict(loss=loss, **given, **measured, **counters, **metrics)

  return step


def jit_step(step, *, mesh: jax.sharding.Mesh, abstract):
  """The function of `make`, compiled for a mesh; the old state is donated.

  Args:
    step: from `make`.
    mesh: the devices.
    abstract: shapes and shardings of the TrainState.
  """
  shardings = jax.tree.map(lambda x: x.sharding, abstract)
  return jax.jit(
    meshes.on(mesh, step),
    donate_argnums=0,
    out_shardings=(shardings, meshes.replicated(mesh)),
  )


def progress_at(position, total: int) -> jax.Array:
  """The fraction of a run that is done at a position; 0 if its end, `total`, is not known."""
  if not total:
    return jnp.zeros(())
  return jnp.clip(position / total, 0.0, 1.0)


def extra_seen(objective: Objective, state: TrainState, progress: jax.Array) -> dict:
  """The `extra` that the loss gets in the step after `state`."""
  return objective.seen(state.extra, for_evaluation(state), progress)


def loss_and_grads(objective: Objective, params, extra, trained, part, key):
  """((loss, the other sums), gradient for `trained`) of a part of a batch; all are sums.

  `extra` is that of `extra_seen`.
  """

  def loss(trained):
    total, *others = objective.loss(optim.combine(trained, params), extra, part, key)
    return total, others

  return jax.value_and_grad(loss, has_aux=True)(trained)


def means(of_part, trained, batch, key, accumulation: int):
  """Loss, gradient, metrics and statistics (still sums) of a prepared batch.

  Sums are divided by the count of the whole batch. So parts with fewer good examples weigh less,
  and accumulation gives the gradient of the undivided batch.
  """
  (loss, others), grads = accumulate(of_part, trained, batch, key, accumulation)
  count, metrics, statistics = others
  count = jnp.where(count > 0, count, 1.0)
  loss, grads = jax.tree.map(lambda x: x / count, (loss, grads))
  metrics = {PREFIX + name: total / n for name, (total, n) in metrics.items()}
  return loss, grads, metrics, statistics


def updated(objective, optimizer, settings, state: TrainState, before, grads, given, progress):
  """Trained parameters, optimizer state and moving average.

  `given` is what the `update` of `optim.make` gets, but for `depth` and `held`.
  """
  held = functools.partial(objective.held, progress=progress)
  depth = optim.depth_of(state.params)  # `before` may lack frozen blocks
  changes, optimizer_state = optimizer.update(
    grads, state.optimizer, before, depth=depth, held=held, **given
  )
  # Held again, because an optimizer's `around` mixes arrays, and rounds even where they are equal.
  after = jax.tree.map(jnp.add, before, held(changes))
  factor = average_factor(settings, state.step - state.skipped, progress)
  averaged = settings.averaged(optimizer_state, after)
  return after, optimizer_state, averaged or average(state.ema, after, factor)


def apply_if_finite(state: TrainState, before, proposed, finite, mask) -> TrainState:
  """The state after a step; uses `proposed` only if it is finite.

  Args:
    state: before the step.
    before: its trained parameters.
    proposed: trained parameters, optimizer state, moving average and `extra` of the objective.
    finite: whether loss and gradient are finite.
    mask: of the batch.
  """
  held = before, state.optimizer, state.ema, state.extra
  chosen = jax.tree.map(lambda new, old: jnp.where(finite, new, old), proposed, held)
  params, optimizer_state, ema, extra = chosen
  return TrainState(
    step=state.step + 1,
    params=optim.combine(params, state.params),
    optimizer=optimizer_state,
    ema=ema,
    extra=extra,
    bad_examples=state.bad_examples + jnp.sum(mask == 0, dtype=jnp.int32),
    skipped=jnp.where(finite, 0, state.skipped + 1),
  )


def average_factor(settings: Optimizer, step, progress=0.0):
  """The weight of the old moving average in the update that follows `step` updates.

  With `ema_corrected` the average after n updates is sum_i d^(n-i) p_i / sum_i d^(n-i), with p_i
  the parameters after update i and d the decay. As a recurrence, the weight of the old average is
  d (1 - d^(n-1)) / (1 - d^n), which is 0 for the first update.

  Args:
    settings: config.optimizer.
    step: steps so far, without the latest run of skipped updates, so it is 0 until the first update
      is applied. Earlier skipped steps count, as if they had repeated the parameters before them.
    progress: the fraction of the run that is done, for `end_ema`.
  """
  if settings.ema and settings.end_ema:
    return optim.cosine(settings.ema, settings.end_ema, progress)
  if not (settings.ema and settings.ema_corrected):
    return settings.ema
  log = math.log(settings.ema)
  return settings.ema * jnp.expm1(log * step) / jnp.expm1(log * (step + 1))


def average(ema, params, factor):
  """Polyak averaging: factor * ema + (1 - factor) * params; None stays None.

  The code uses a single product: two weights, each rounded to float32, do not add up to 1, and with
  a factor of 0.9999 the average would end up 0.015% too small.
  """
  if ema is None:
    return None
  return jax.tree.map(lambda e, p: p + factor * (e - p), ema, params)


def accumulate(function, params, batch, key, parts: int):
  """Sums function(params, part, key) over `parts` equal parts of the batch, one after another."""
  if parts == 1:
    return function(params, batch, key)

  def add(total, indexed_rows):
    index, rows = indexed_rows
    value = function(params, rows, jax.random.fold_in(key, index))
    return jax.tree.map(jnp.add, total, value), None

  divided = jax.tree.map(lambda x: divide(x, parts), batch)
  shapes = jax.eval_shape(function, params, jax.tree.map(lambda x: x[0], divided), key)
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
  total, _ = jax.lax.scan(add, zeros, (jnp.arange(parts), divided))
  return total


def divide(x: jax.Array, parts: int) -> jax.Array:
  """(B, ...) -> (parts, B / parts, ...); part p holds the rows p, p + parts, p + 2 parts, ...

  Every device then divides its own rows, and no rows move between devices.
  """
  return x.reshape(len(x) // parts, parts, *x.shape[1:]).swapaxes(0, 1)
