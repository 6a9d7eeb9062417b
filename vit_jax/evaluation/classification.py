"""Top-1, top-5, loss and calibration over a set of images, every image counted exactly once."""

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config import Loss
from vit_jax.data.device import normalize
from vit_jax.learning import losses

FIGURES = ("loss", "top1", "top5")  # of every set
BINS = 15
PROBABILITIES = {"softmax": jax.nn.softmax, "sigmoid": jax.nn.sigmoid}


class NothingCounts(ValueError):
  """No image of a set has a label."""


def make_step(model, loss: Loss):
  """The function (params, batch, classes) -> (sums, rows).

  `classes` (static, ascending) are those that are predicted among, all others being left out; None:
  all. An image counts where its mask is 1 and it has a label. With several true labels it is right
  when any of them is the first prediction (top-1) or among the first five (top-5).

  Sums over the images that count: loss, top1, top5 and examples, scalars; "binned" (3, BINS) where
  images have one label: number, probability and hits of those whose probability lies in each bin.
  Rows, one for each image: labels as in the batch, prediction (B,), probability of it, and counts.
  """
  per_example, probabilities = losses.LOSSES[loss.kind], PROBABILITIES[loss.kind]

  def step(params, batch, classes=None):
    logits, _ = model.apply({"params": params}, normalize(batch["image"], model.dtype), train=False)
    target = losses.targets(batch["labels"], logits.shape[-1])
    counts = batch["mask"] * target.any(axis=-1)
    if classes is not None:
      logits, target = logits[:, np.array(classes)], target[:, np.array(classes)]
    values = per_example(logits, target, label_smoothing=loss.label_smoothing)
    _, best = jax.lax.top_k(logits, min(5, logits.shape[-1]))
    hits = jnp.take_along_axis(target, best, axis=-1) > 0
    probability = probabilities(logits.astype(jnp.float32)).max(axis=-1)
    sums = dict(
      loss=jnp.sum(values * counts),
      top1=jnp.sum(hits[:, 0] * counts),
      top5=jnp.sum(hits.any(axis=-1) * counts),
      examples=jnp.sum(counts),
    )
    if batch["labels"].ndim == 1:
      sums["binned"] = binned(probability, hits[:, 0], counts)
    prediction = best[:, 0] if classes is None else jnp.array(classes)[best[:, 0]]
    rows = dict(prediction=prediction, probability=probability, counts=counts)
    return sums, rows | dict(labels=batch["labels"])

  return step


def binned(probability: jax.Array, hits: jax.Array, counts: jax.Array) -> jax.Array:
  """Number, probabilities and hits, summed over the images of each bin ((m - 1) / M, m / M]."""
  bins = jnp.clip(jnp.ceil(probability * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
  member = (bins == jnp.arange(BINS)[:, None]) * counts
  return jnp.stack([member.sum(-1), (member * probability).sum(-1), (member * hits).sum(-1)])


def evaluate(
  step, params, batches, *, stop=lambda: False, keep=lambda rows: None
) -> dict[str, float] | None:
  """Means over all images that count: loss, top1, top5; their number; "ece" where there are bins.

  The expected calibration error is the mean over images of |accuracy - probability| in their bin;
  source: Guo et al., "On Calibration of Modern Neural Networks", 2017, Section 2.

  Each batch's counts are exact in float32; they are added up in float64 on the host, one batch
  behind, so that the devices always have the next batch.

  Args:
    step: jitted `make_step(...)`.
    params: parameters.
    batches: batches on the devices.
    stop: asked between batches; once True, the evaluation is given up.
    keep: given the rows of each batch, in order.

  Returns:
    The figures, or None where it was given up.

  Raises:
    NothingCounts: no image counts.
  """
  totals, before = {}, None
  for batch in batches:
    if stop():
      return None
    current = step(params, batch)
    settle(totals, before, keep)
    before = current
  settle(totals, before, keep)
  count = totals.pop("examples")
  if not count:
    raise NothingCounts("none of its images has a label; name another label_key or set.")
  bins = totals.pop("binned", None)
  result = {name: float(total / count) for name, total in totals.items()}
  if bins is not None:
    result["ece"] = float(np.abs(bins[2] - bins[1]).sum() / count)
  return result | {"examples": int(count)}


def settle(totals, results, keep):
  """Adds up and keeps what a batch's step gave; None: there was no batch."""
  if results is not None:
    add(totals, results[0])
    keep(results[1])


def add(totals: dict[str, np.ndarray], sums: dict[str, jax.Array]):
  """Adds one batch's sums to the totals, in place and in float64."""
  for name, value in jax.device_get(sums).items():
    totals[name] = totals.get(name, 0.0) + np.asarray(value, np.float64)
