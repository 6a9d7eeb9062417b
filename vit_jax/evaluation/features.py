"""Features: a model's output before its head, used by evaluations without the head."""

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.data.device import normalize
from vit_jax.data.sources import Source
from vit_jax.evaluation.adding import one_behind
from vit_jax.evaluation.spec import EvalContext


def features_of(model, params, images: jax.Array, representation: str) -> jax.Array:
  """The features (B, D), float32, of uint8 images (B, S, S, 3).

  Args:
    model, params: the network; its head is not needed.
    images: the images.
    representation: "pre_logits", the input of the head; or "patches", the mean of the encoder's
      outputs at the patches.
  """
  images = normalize(images, model.dtype)
  seen = model.apply({"params": params}, images, train=False, method="features")
  found = seen[representation].astype(jnp.float32)
  return found.mean(axis=1) if representation == "patches" else found


def make_step(model, representation: str):
  """The function (params, batch) -> features (B, D), labels (B,) and mask (B,) of a batch."""

  def step(params, batch):
    features = features_of(model, params, batch["image"], representation)
    return dict(features=features, labels=batch["labels"], mask=batch["mask"])

  return step


def of_source(
  context: EvalContext, params, source: Source, representation: str = ""
) -> tuple[np.ndarray, np.ndarray]:
  """As `collect`, for all images of a source, each as `Reader.squares` prepares it.

  Args:
    context, params, source: the model and the images.
    representation: as in `features_of`; "": the context's.

  Raises:
    EvaluationInterrupted: the run was asked to stop.
    BadImage, OSError: an image cannot be read.
  """
  step = context.compiled(make_step, representation or context.representation)
  with context.batches(context.reader.squares(source)) as batches:
    return collect(step, params, batches)


def collect(step, params, batches) -> tuple[np.ndarray, np.ndarray]:
  """Features (N, D) float32 and labels (N,) of all images, in order, on every host.

  Args:
    step: jitted `make_step(...)` whose results are replicated, so that each host has every row.
    params: parameters.
    batches: batches on the devices.
  """
  parts = [counted(rows) for rows in one_behind(step(params, batch) for batch in batches)]
  features, labels = zip(*parts, strict=True)
  return np.concatenate(features), np.concatenate(labels)


def counted(rows) -> tuple[np.ndarray, np.ndarray]:
  """The features and labels of a batch's images whose mask is 1."""
  rows = jax.device_get(rows)
  counts = rows["mask"] > 0
  return rows["features"][counts], rows["labels"][counts]
