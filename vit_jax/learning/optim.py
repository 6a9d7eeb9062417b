"""Learning rate, weight decay by name, and the chain of gradient transformations."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vit_jax.config import ConfigError, Optimizer
from vit_jax.models.stacking import APART, STACKED
from vit_jax.storage.tree import name_of


def learning_rate_schedule(
  *,
  learning_rate: float,
  warmup_steps: int,
  total_steps: int,
  decay: str,
  end_learning_rate: float,
  drops: tuple[float, ...] = (),
) -> optax.Schedule:
  """Learning rate as a function of the number of steps before.

  The step after n steps uses rate(n), and gives the state of step n + 1; the log counts by that
  state: its step 7 used rate(6), and the first update of a run uses rate(0). Steps whose update was
  skipped (config.non_finite) count too.

  The rate rises linearly from 0 to `learning_rate` during the warm-up. After it, with t from 0 at
  the end of the warm-up to 1 after `total_steps` updates:
    linear:   base + (end - base) t
    cosine:   end + (base - end) (1 + cos(pi t)) / 2
    constant: base
    steps:    base / 10^n, with n the number of `drops` reached so far; each is a fraction of
              `total_steps`, rounded to a whole step

  Returns:
    A function from a step (scalar, integer) to a float32 scalar.
  """
  base = learning_rate
  end = end_learning_rate
  dropped = [round(fraction * total_steps) for fraction in drops]
  shapes = {
    "linear": lambda t, _: base + (end - base) * t,
    "cosine": lambda t, _: end + (base - end) * (1 + jnp.cos(jnp.pi * t)) / 2,
    "constant": lambda t, _: jnp.full_like(t, base),
    "steps": lambda _, step: (
      base * 0.1 ** sum(jnp.where(step >= drop, 1.0, 0.0) for drop in dropped)
    ),
  }

  def rate(step):
    step = jnp.asarray(step, jnp.float32)
    t = (step - warmup_steps) / max(total_steps - warmup_steps, 1)
    decayed = shapes[decay](jnp.clip(t, 0.0, 1.0), step)
    return jnp.where(step < warmup_steps, base * step / max(warmup_steps, 1), decayed)

  return rate


LAST = re.compile(
  r"(head|pre_logits|MAPHead_0|pooled_norm|neck|objective|Transformer/encoder_norm)/.*"
)


def scale_by_layer(decay: float) -> optax.GradientTransformationExtraArgs:
  """Multiplies the update of each parameter by the factor of its layer; `factors` gives these.

  Its `update` gets `depth`, the number of blocks of the whole model: updates may be of a few.
  """

  def update(updates, state, params, *, depth, **_):
    scaled = jax.tree.map(lambda u, f: u * f, updates, factors(params, decay, depth))
    return scaled, state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def factors(params, decay: float, depth: int):
  """decay^(L + 1 - l) for the parameters of layer l; L is the number of blocks.

  Layer 0 is everything before the blocks: patch and position embeddings, the class token, other
  tokens, a hybrid's ResNet. Layers 1 to L are the blocks. Layer L + 1 is everything after them: the
  final LayerNorm, pooling, the head, and what an objective adds, such as a decoder. The final
  LayerNorm has the factor of the head, 1, as in BEiT and MAE; timm counts it as part of the last
  block, with the factor `decay`.

  Args:
    params: parameters, or their shapes; blocks single or stacked.
    decay: factor from each layer to the one before it.
    depth: L, as by `depth_of`.

  Returns:
    A tree of numbers; for stacked blocks arrays (L, 1, ...).
  """

  def factor(path, x):
    name = name_of(path)
    if LAST.fullmatch(name):
      return 1.0
    block = block_of(name, x)
    if block is None:
      return decay ** (depth + 1.0)
    powers = decay ** (depth - block.astype(float))
    if powers.ndim:
      return jnp.asarray(powers, x.dtype)
    return float(powers)

  return jax.tree_util.tree_map_with_path(factor, params)


def depth_of(params) -> int:
  """The number of the model's blocks, single or stacked; those of an objective do not count.

  Args:
    params: all parameters, or their shapes.
  """
  leaves = [(name_of(path), x) for path, x in jax.tree_util.tree_leaves_with_path(params)]
  blocks = [block_of(name, x) for name, x in leaves if not LAST.fullmatch(name)]
  return 1 + max((int(np.max(block)) for block in blocks if block is not None), default=-1)


def block_of(name: str, x) -> np.ndarray | None:
  """The block that a parameter belongs to, counted from 0; None if it belongs to no block.

  For stacked blocks: the numbers of all of them, (L, 1, ...), to broadcast with the parameter.
  """
  for module in name.split("/"):
    if match := APART.fullmatch(module):
      return np.array(int(match[1]))
    if module == STACKED:
      return np.arange(x.shape[0]).reshape(-1, *[1] * (x.ndim - 1))
  return None


def partition(params, pattern: str):
  """The tree of the parameters whose whole names match the regex `pattern`.

  The other parameters are None, which JAX treats as a tree without leaves. So gradients, moments
  and averages made from the result contain nothing for them.
  """

  def selected(path, x):
    if re.fullmatch(pattern, name_of(path)):
      return x
    return None

  return jax.tree_util.tree_map_with_path(selected, params)


def combine(part, params):
  """`params`, with values replaced by those in `part`, a result of `partition`."""

  def newest(new, old):
    if new is None:
      return old
    return new

  return jax.tree.map(newest, part, params, is_leaf=lambda x: x is None)


def decay_factor(name: str, rules: tuple[tuple[str, float], ...]) -> float | None:
  """The factor of the first rule that matches the whole name; None if no rule does."""
  return next((value for pattern, value in rules if re.fullmatch(pattern, name)), None)


def decay_factors(params, rules: tuple[tuple[str, float], ...]):
  """The factor on the weight decay of every parameter, from the first rule that matches.

  Args:
    params: tree of arrays or shapes.
    rules: pairs (regex of the whole name, factor).

  Raises:
    ConfigError: no rule matches a parameter.
  """

  def factor(path, _):
    name = name_of(path)
    value = decay_factor(name, rules)
    if value is None:
      raise ConfigError(
        f"No rule of config.optimizer.decay_rules matches the parameter {name!r}; "
        "add one that says whether it decays."
      )
    return value

  return jax.tree_util.tree_map_with_path(factor, params)


def cosine(first: float, end: float, progress):
  """first at progress 0, end at 1: end + (first - end) (1 + cos(pi progress)) / 2."""
  return end + (first - end) * (1 + jnp.cos(jnp.pi * progress)) / 2


def decay_weights(weight_decay: float, rules) -> optax.GradientTransformationExtraArgs:
  """Adds weight_decay * factor * parameter to the update, which may be given another weight_decay.

  Its `init` raises ConfigError if no rule matches a parameter, so that such a run does not begin.
  """

  def init(params):
    decay_factors(params, rules)
    return optax.EmptyState()

  def update(updates, state, params, *, weight_decay=weight_decay, **_):
    def decayed(u, p, factor):
      if not factor:
        return u
      return u + weight_decay * factor * p

    factors = decay_factors(params, rules)
    return jax.tree.map(decayed, updates, params, factors), state

  return optax.GradientTransformationExtraArgs(init, update)


def with_moment_dtype(
  inner: optax.GradientTransformation, moment: str, dtype: jnp.dtype
) -> optax.GradientTransformation:
  """`inner`, with one moment of its state stored in `dtype` between updates, computed in float32.

  Optax computes decay * moment in the moment's own type, and so rounds the decay too: in bfloat16
  0.9 is 0.8984, and 0.999 is 1.

  Args:
    inner: its state consists of named tuples.
    moment: name of the field that holds the moment.
    dtype: the type to store it in.
  """
  field = jax.tree_util.GetAttrKey(moment)

  def cast(state, dtype):
    def cast_moment(path, leaf):
      if field in path:
        return leaf.astype(dtype)
      return leaf

    return jax.tree_util.tree_map_with_path(cast_moment, state)

  def init(params):
    return cast(inner.init(params), dtype)

  def update(updates, state, params=None):
    directions, after = inner.update(updates, cast(state, jnp.float32), params)
    return directions, cast(after, dtype)

  return optax.GradientTransformation(init, update)


def clip_by_norm(most: float) -> optax.GradientTransformationExtraArgs:
  """`optax.clip_by_global_norm`, whose `update` gets the norm, `grad_norm`, and computes none."""

  def update(grads, state, params=None, *, grad_norm, **_):
    del params
    fits = grad_norm < most
    return jax.tree.map(lambda g: jnp.where(fits, g, g / grad_norm * most), grads), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def by_rate() -> optax.GradientTransformationExtraArgs:
  """Directions -> changes of the parameters: minus the learning rate times the direction.

  Its `update` may get `held`, a function of the changes.
  """

  def update(directions, state, params=None, *, learning_rate, held=lambda changes: changes, **_):
    del params
    return held(jax.tree.map(lambda d: -learning_rate * d, directions)), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def by_block(inner: optax.GradientTransformation) -> optax.GradientTransformation:
  """Applies `inner` to each block of stacked arrays by itself; other arrays stay whole.

  `inner` must have no state, and must change each array by itself.
  """

  def change_array(u, p):
    return inner.update(u, optax.EmptyState(), p)[0]

  def change(path, u, p):
    if f"{STACKED}/" in name_of(path):
      return jax.vmap(change_array)(u, p)
    return change_array(u, p)

  def update(updates, state, params):
    return jax.tree_util.tree_map_with_path(change, updates, params), state

  return optax.GradientTransformation(optax.init_empty_state, update)


def make(config: Optimizer) -> optax.GradientTransformationExtraArgs:
  """From gradients to changes of the parameters, by optax.

  `update` also gets `learning_rate`; `grad_norm`, the global norm of the gradients; `depth`, the
  number of the model's blocks; `weight_decay` if it changes during the run; and `held` if an
  objective holds some of the changes, before the optimizer's `around` sees them.

  With decoupled decay (AdamW): clip, precondition, decay. With coupled decay (L2): clip, decay,
  precondition. Then the optimizer's `adapt`, the factors of layers, and minus the learning rate.

  The first moment is stored in `config.moment_dtype`, all other state in float32.
  """
  clip = optax.identity()
  if config.clip_norm:
    clip = clip_by_norm(config.clip_norm)
  layers = optax.identity()
  if config.layer_decay < 1:
    layers = scale_by_layer(config.layer_decay)
  dtype = jnp.dtype(config.moment_dtype)
  direction = [
    with_moment_dtype(config.precondition(), config.moment, dtype),
    decay_weights(config.weight_decay, config.decay_rules),
  ]
  if config.decay_kind == "coupled":
    direction.reverse()
  return config.around(optax.chain(clip, *direction, config.adapt(), layers, by_rate()))
