"""Speed of predictions on this machine, compared with timm's model in torch.

Images of 224 px that lie in memory are classified: from uint8 pixels to the five most probable
classes of each, in float32, in batches of 1 and of 32. Measured in turns, as training steps are.
"""

import multiprocessing
import statistics

import numpy as np

from vit_jax.extras.benchmarks import step
from vit_jax.extras.experiments import timing

MODELS = {"ViT-S/16": "vit_small_patch16_224", "ViT-B/16": "vit_base_patch16_224"}
BATCHES = 1, 32
IMAGES = 32  # classified in a call
CALLS = 6
TOP = 5


def measure(*, rounds: int = 3) -> list[dict]:
  """Measures every contestant with each model and batch, in each of `rounds` rounds.

  Returns:
    One row each, with medians over the rounds: name, batch, images_per_second, ratio (its speed
    divided by that of torch eager in the same round).
  """
  context = multiprocessing.get_context("spawn")
  cases = [(model, batch) for model in MODELS for batch in BATCHES]
  names = step.OURS, step.EAGER, step.COMPILED
  seconds = {(*case, name): [] for case in cases for name in names}
  for _ in range(rounds):
    for (model, batch, name), times in seconds.items():
      times.append(step.answer(context, name, call_seconds, model, batch, name)["seconds"])
  return [
    {
      "name": f"{model}, {name}",
      "batch": batch,
      "images_per_second": IMAGES / statistics.median(times),
      "ratio": step.median_ratio(seconds[model, batch, step.EAGER], times),
    }
    for (model, batch, name), times in seconds.items()
  ]


def call_seconds(model: str, batch: int, name: str) -> dict:
  """The median seconds in which a contestant classifies all images, in a process of its own."""
  pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, step.SIDE, step.SIDE, 3), np.uint8)
  if name == step.OURS:
    classify = jax_classifier(model)
  else:
    classify = torch_classifier(MODELS[model], compiled=name == step.COMPILED)
  return dict(seconds=timing.median_seconds(lambda: classify(pixels, batch), calls=CALLS))


def jax_classifier(name: str):
  """Returns a function (pixels (N, S, S, 3) uint8, batch size) -> our predictions."""
  import jax

  from vit_jax import models, weights
  from vit_jax.inference import model as loaded

  module = models.create(name, num_classes=step.CLASSES)
  rng = np.random.default_rng(0)
  draw = lambda one: rng.normal(0, 0.02, one.shape).astype(np.float32)
  params = jax.tree.map(draw, module.parameter_shapes(step.SIDE))
  names = tuple(map(str, range(step.CLASSES)))
  card = weights.Card(step.SIDE, class_names=names, model=models.settings_of(module))
  model = loaded.of_weights(weights.Weights(params, card))
  return lambda pixels, batch: model.predict(pixels, top=TOP, batch_size=batch)


def torch_classifier(name: str, *, compiled: bool):
  """As `jax_classifier`, with timm's model in torch."""
  import torch

  timm = step.imported_timm()

  model = timm.create_model(name, act_layer="gelu_tanh").eval()
  forward = torch.compile(model) if compiled else model

  @torch.inference_mode()
  def classify(pixels, batch):
    found = []
    for first in range(0, len(pixels), batch):
      images = torch.from_numpy(pixels[first : first + batch]).permute(0, 3, 1, 2) / 127.5 - 1
      found.append(forward(images).softmax(-1).topk(TOP))
    return [one.numpy() for pair in found for one in pair]

  return classify
