"""One update: loss, gradients, accumulation, clipping, moving average. Pure; jitted by train.py."""

import functools

import jax
import jax.numpy as jnp
import optax

from vit_jax.config import Config
from vit_jax.data.device import normalize
from vit_jax.learning import losses, mixup, optim
from vit_jax.learning.state import TrainState


def make(model, optimizer: optax.GradientTransformation, rate: optax.Schedule, config: Config):
  """The function (state, batch) -> (state, metrics) of a run.

  The batch holds image (B, S, S, 3) uint8, labels (B,) or (B, K) and mask (B,). The loss is the
  mean over the examples whose mask is 1. Metrics are scalars: loss, learning_rate, grad_norm
  (before clipping), param_norm, update_norm (of what was added to the parameters), bad_examples
  and skipped (see TrainState).

  An update is left out where the loss or the gradient's norm is not finite: the state stays as it
  was but for the counters. All is known before the update begins, so that parameters and moments
  are read and written once.

  Where config.optimizer.trainable leaves parameters out, the gradient is with respect to the others
  alone, and so are its norm, clipping, decay and the norm of the update.
  """
  loss_and_grads = _loss_and_grads(model, config)

  def step(state: TrainState, batch) -> tuple[TrainState, dict[str, jax.Array]]:
    # The key depends on nothing but the seed and the step: resumed runs draw the same numbers.
    key = jax.random.fold_in(jax.random.key(config.seed), state.step)
    before = optim.trained(state.params, config.optimizer.trainable)
    loss, grads = loss_and_grads(before, state.params, batch, key)
    grad_norm = optax.tree.norm(grads)
    directions, optimizer_state = optimizer.update(grads, state.optimizer, before)
    learning_rate = rate(state.step)
    after = jax.tree.map(lambda p, d: p - learning_rate * d, before, directions)
    ema = average(state.ema, after, config.optimizer.ema)

    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    keep = lambda new, old: jax.tree.map(lambda n, o: jnp.where(finite, n, o), new, old)
    new_state = TrainState(
      step=state.step + 1,
      params=optim.merged(keep(after, before), state.params),
      optimizer=keep(optimizer_state, state.optimizer),
      ema=keep(ema, state.ema),
      bad_examples=state.bad_examples + jnp.sum(batch["mask"] == 0, dtype=jnp.int32),
      skipped=jnp.where(finite, 0, state.skipped + 1),
    )
    applied = optim.trained(new_state.params, config.optimizer.trainable)
    metrics = dict(
      loss=loss,
      learning_rate=learning_rate,
      grad_norm=grad_norm,
      param_norm=optax.tree.norm(new_state.params),
      update_norm=optax.tree.norm(jax.tree.map(jnp.subtract, applied, before)),
      bad_examples=new_state.bad_examples,
      skipped=new_state.skipped,
    )
    return new_state, metrics

  return step


def average(ema, params, factor: float):
  """Polyak averaging: factor * ema + (1 - factor) * params; None stays None."""
  if ema is None:
    return None
  return jax.tree.map(lambda e, p: factor * e + (1 - factor) * p, ema, params)


def _loss_and_grads(model, config: Config):
  """(trained, params, batch, key) -> loss and its gradient by `trained` over the whole batch."""
  kind = losses.LOSSES[config.loss.kind]
  per_example = functools.partial(kind, label_smoothing=config.loss.label_smoothing)

  def summed_loss(trained, params, batch, key):
    images = normalize(mixup.images(batch), model.dtype)
    variables = {"params": optim.merged(trained, params)}
    logits, _ = model.apply(variables, images, train=True, rngs={"dropout": key})
    of_labels = lambda labels: per_example(logits, losses.targets(labels, logits.shape[-1]))
    return jnp.sum(mixup.loss(of_labels, batch) * batch["mask"])

  def whole(trained, params, batch, key):
    # Sums are divided by the count of the whole batch, so parts with fewer good examples weigh
    # less and accumulation gives the gradient of the undivided batch.
    batch = mixup.paired(batch, key, config.data.mixup)
    count = jnp.maximum(batch["mask"].sum(), 1.0)
    of_part = lambda trained, part, key: jax.value_and_grad(summed_loss)(trained, params, part, key)
    sums = accumulate(of_part, trained, batch, key, config.accumulation)
    return jax.tree.map(lambda x: x / count, sums)

  return whole


def accumulate(function, params, batch, key, parts: int):
  """Sums function(params, part, key) over `parts` equal parts of the batch, one after another."""
  if parts == 1:
    return function(params, batch, key)

  def add(total, indexed_part):
    index, part = indexed_part
    value = function(params, part, jax.random.fold_in(key, index))
    return jax.tree.map(jnp.add, total, value), None

  divided = jax.tree.map(lambda x: divide(x, parts), batch)
  shapes = jax.eval_shape(function, params, jax.tree.map(lambda x: x[0], divided), key)
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
  total, _ = jax.lax.scan(add, zeros, (jnp.arange(parts), divided))
  return total


def divide(x: jax.Array, parts: int) -> jax.Array:
  """(B, ...) -> (parts, B / parts, ...); part p holds the rows p, p + parts, p + 2 parts, ...

  Every device then divides the rows that it has, and none are moved between devices.
  """
  return x.reshape(len(x) // parts, parts, *x.shape[1:]).swapaxes(0, 1)
