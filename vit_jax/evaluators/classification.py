"""Top-1, top-5 and loss over a set of images, every image counted exactly once."""

import jax
import jax.numpy as jnp

from vit_jax import losses
from vit_jax.config import Loss
from vit_jax.data.device import normalize

FIGURES = ("loss", "top1", "top5")


def make_step(model, loss: Loss):
  """The function (params, batch) -> sums over the batch's images whose mask is 1.

  The sums are loss, top1, top5 and examples, scalars. With several true labels an image counts as
  right when any of them is the first prediction (top-1) or among the first five (top-5).
  """
  per_example = losses.LOSSES[loss.kind]

  def step(params, batch):
    logits, _ = model.apply({"params": params}, normalize(batch["image"], model.dtype), train=False)
    target = losses.targets(batch["labels"], logits.shape[-1])
    values = per_example(logits, target, label_smoothing=loss.label_smoothing)
    _, best = jax.lax.top_k(logits, min(5, logits.shape[-1]))
    hits = jnp.take_along_axis(target, best, axis=-1) > 0
    mask = batch["mask"]
    return dict(
      loss=jnp.sum(values * mask),
      top1=jnp.sum(hits[:, 0] * mask),
      top5=jnp.sum(hits.any(axis=-1) * mask),
      examples=jnp.sum(mask),
    )

  return step


def evaluate(step, params, batches, *, stop=lambda: False) -> dict[str, float] | None:
  """Means over all batches: loss, top1, top5 and the count of examples.

  Each batch's sums are exact in float32; they are added up in float64 on the host, one batch
  behind, so that the devices always have the next batch.

  Args:
    step: jitted `make_step(...)`.
    params: parameters.
    batches: batches on the devices.
    stop: asked between batches; once True, the evaluation is given up.

  Returns:
    The figures, or None where it was given up.
  """
  totals = dict.fromkeys((*FIGURES, "examples"), 0.0)
  before = None
  for batch in batches:
    if stop():
      return None
    current = step(params, batch)
    add(totals, before)
    before = current
  add(totals, before)
  count = totals.pop("examples")
  return {name: total / count for name, total in totals.items()} | {"examples": int(count)}


def add(totals: dict[str, float], sums: dict[str, jax.Array] | None):
  """Adds one batch's sums to the totals, in place."""
  for name, value in jax.device_get(sums or {}).items():
    totals[name] += float(value)
