"""Writes a model's parameters in another format, and verifies the result."""

import pathlib

import jax
import numpy as np

from vit_jax import weights
from vit_jax.config import in_pixels, sides
from vit_jax.inference.model import LoadedModel
from vit_jax.learning.objective import OBJECTIVE_PARAMS, of_model
from vit_jax.weights.card import parameters_in_words

BOUND = 1e-5


def write(model: LoadedModel, source: str, output: pathlib.Path, name: str = "") -> list[str]:
  """Writes a model's parameters and their card; returns lines that describe the files.

  Args:
    model: the model.
    source: where it was read from.
    output: a file or folder.
    name: of the format; "": by the suffix of `output`.

  Raises:
    ValueError: the parameters are not of a model of this project, or have no place in the format.
    OSError: a file cannot be written.
  """
  read = model.read
  card = model.card
  if card.image_size:
    model.at_size()  # finds missing and surplus parameters before anything is written
  kept = of_model(read.params)
  weights.write(output, weights.Weights(kept, card), name)
  size = f"{in_pixels(card.image_size)} px" if card.image_size else "an unknown number of pixels"
  kind = parameters_in_words(card.average)
  lines = [
    f"{output}: {kind} of {origin(model, source)}; images of {size}, "
    f"{len(card.class_names) or 'no'} class names"
  ]
  if OBJECTIVE_PARAMS in read.params:
    lines.append(f"Left out, because only the training objective needs them: {left_out(read)}.")
  if "head" not in read.params:
    lines.append("These weights have no head: they give features, or a start for fine-tuning.")
  return lines + weights.format_to_write(output, name).notes(kept, card)


def origin(model: LoadedModel, source: str) -> str:
  """Where a model was read from: `source`, and the step if it is a run."""
  if not model.read.step:
    return source
  return f"{source} after step {model.read.step:,}"


def left_out(read: weights.Weights) -> str:
  """The parts that only the training objective needs, in words; "" if there are none."""
  return ", ".join(f"{OBJECTIVE_PARAMS}/{name}" for name in read.params.get(OBJECTIVE_PARAMS, {}))


def verify(model: LoadedModel, again: LoadedModel) -> str:
  """States the largest difference between the outputs of two models, on two random images.

  The outputs are the features and the logits, which are zeros if the weights have no head.

  Raises:
    ValueError: the difference is above the bound, or outputs are not finite.
  """
  size = model.card.image_size or model.module.usual_side()
  if not size:
    raise ValueError("the parameters do not tell their image size, so they cannot be verified.")
  shape = 2, *sides(size), model.module.channels
  images = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)

  def outputs(loaded):
    run = jax.jit(lambda params: loaded.module.apply({"params": params}, images, train=False))
    logits, features = run(loaded.at_size(size).params)
    return [*features.values(), logits]

  difference = largest_difference(outputs(model), outputs(again))
  compared = "logits and features" if model.has_head else "features (there is no head)"
  words = f"largest difference of the {compared} after reading it again: {difference:.3g}"
  if not difference <= BOUND:
    raise ValueError(f"{words}, above {BOUND}.")
  return words


def largest_difference(before: list, after: list) -> float:
  """The largest difference between arrays and those of the same shapes after an export.

  Raises:
    ValueError: arrays of `before` are not finite.
  """
  if not all(np.isfinite(output).all() for output in before):
    raise ValueError(
      "outputs for random images are not finite, so comparing them shows nothing; the weights"
      " are damaged or have diverged."
    )
  pairs = zip(before, after, strict=True)
  return float(np.max([np.abs(before - after).max() for before, after in pairs]))
