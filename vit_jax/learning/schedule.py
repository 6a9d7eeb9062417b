"""The learning rate of every step."""

import jax.numpy as jnp
import optax


def make(
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
