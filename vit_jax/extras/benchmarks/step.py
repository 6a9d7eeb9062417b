"""Speed of the training step of ViT-S/16 on this machine, compared with timm's model in torch.

Batch 16, 224 px, float32, AdamW, softmax cross-entropy; ours is the step of the main job. Every
measurement runs alone in its own process. All use huge pages, as the main job does
(vit_jax/process/machine.py), and even a waiting process would take the memory for them. The
contestants take turns, so that a change in the machine's speed favours none of them.
"""

import enum
import importlib.util
import math
import multiprocessing
import operator
import statistics
import sys
import types

from vit_jax.extras.benchmarks.processes import in_process
from vit_jax.extras.experiments import timing

MODEL = "ViT-S/16"
BATCH = 16
SIDE = 224
CLASSES = 1000
MATMUL = 2048  # rows and columns of the matmul that is the measure of the machine
CALLS = 6  # of a step
OURS = "vit_jax"
EAGER = "timm, torch eager"
COMPILED = "timm, torch.compile"


def measure(*, rounds: int = 3) -> list[dict]:
  """Measures the rate of a matmul, and then every contestant, in each of `rounds` rounds.

  Returns:
    One row each, with medians over the rounds: name, images_per_second, ratio (its speed divided
    by that of torch eager in the same round), mfu (the FLOPs of the model in a second, divided by
    those of XLA's own matmul in float32 in the same round).
  """
  context = multiprocessing.get_context("spawn")
  matmuls = []
  seconds = {name: [] for name in (OURS, EAGER, COMPILED)}
  for _ in range(rounds):
    matmuls.append(answer(context, "XLA's matmul", matmul_rate))
    for name, times in seconds.items():
      times.append(answer(context, name, step_seconds, name)["seconds"])
  least = [BATCH * each["flops"] / each["flops_per_second"] for each in matmuls]
  return [
    {
      "name": name,
      "images_per_second": BATCH / statistics.median(times),
      "ratio": median_ratio(seconds[EAGER], times),
      "mfu": median_ratio(least, times),
    }
    for name, times in seconds.items()
  ]


def median_ratio(some: list[float], others: list[float]) -> float:
  """The median of some numbers, each divided by the other of its round."""
  return statistics.median(map(operator.truediv, some, others))


def answer(context, name: str, function, *arguments) -> dict:
  """Calls a function in a process of its own; ends the program if it fails."""
  found = in_process(context, function, *arguments)
  if "error" in found:
    sys.exit(f"benchmark: {name} could not be measured: {found['error']}")
  return found


def matmul_rate() -> dict:
  """The FLOP/s of XLA's matmul of large float32 matrices, and the FLOPs of training on an image."""
  import jax
  import jax.numpy as jnp

  from vit_jax import models
  from vit_jax.models import vit_costs

  x = jnp.ones((MATMUL, MATMUL))
  matmul = jax.jit(jnp.matmul)
  seconds = timing.median_seconds(lambda: jax.block_until_ready(matmul(x, x)))
  macs = models.create(MODEL, num_classes=CLASSES).macs(SIDE, SIDE)
  return dict(flops_per_second=2 * MATMUL**3 / seconds, flops=vit_costs.training_flops(macs))


def step_seconds(name: str) -> dict:
  """The median seconds of a step of a contestant, for a process of its own."""
  size = dict(side=SIDE, batch=BATCH)
  if name == OURS:
    step = jax_step(MODEL, **size, compute_dtype="float32")
  else:
    step = torch_step("vit_small_patch16_224", **size, compiled=name == COMPILED, half=False)
  return dict(seconds=timing.median_seconds(step, calls=CALLS, enough=math.inf))


def jax_step(model: str, *, side: int, batch: int, **options):
  """Returns a function that runs one of our training steps to its end and returns the metrics.

  Args:
    model: name.
    side: of the images, pixels.
    batch: images in a step.
    **options: further fields of vit_jax.config.Model.
  """
  import jax

  from vit_jax import config as c
  from vit_jax.extras.experiments import step_program
  from vit_jax.learning.optimizers.adam import Adam

  config = c.Config(
    batch_size=batch,
    duration=c.Duration(steps=1),
    loss=c.Loss(kind="softmax"),
    schedule=c.Schedule(learning_rate=1e-3, warmup=c.Duration(), decay="constant"),
    model=c.Model(name=model, num_classes=CLASSES, **dict(compute_dtype="float32") | options),
    optimizer=Adam(weight_decay=0.1, ema=0.0),
    data=c.Data(image_size=side),
  )
  run = step_program.planned(config, jax.devices()[:1])
  return step_program.stepper(run, run.lowered().compile())


def torch_step(name: str, *, side: int, batch: int, compiled: bool, half: bool, depth: int = 0):
  """As `jax_step`, for timm's model `name` in torch, on a GPU if there is one; returns the loss.

  Args:
    name: of timm's model.
    side, batch: as for `jax_step`.
    compiled: by torch.compile.
    half: compute in bfloat16, by autocast.
    depth: number of blocks; 0: the model's own.
  """
  import torch

  timm = imported_timm()
  device = "cuda" if torch.cuda.is_available() else "cpu"
  fewer = {}
  if depth:
    fewer["depth"] = depth
  model = timm.create_model(name, act_layer="gelu_tanh", img_size=side, **fewer)
  model = model.train().to(device)
  optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
  forward = torch.compile(model) if compiled else model
  images = (torch.rand(batch, 3, side, side) * 2 - 1).to(device)
  labels = torch.randint(0, CLASSES, (batch,)).to(device)

  def step():
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device, torch.bfloat16, enabled=half):
      loss = torch.nn.functional.cross_entropy(forward(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()

  return step


def imported_timm():
  """timm, also where torchvision, which its ViT does not need, is not installed."""
  if importlib.util.find_spec("torchvision") is None:
    stand_in_for_torchvision()
  import timm

  return timm


def stand_in_for_torchvision():
  """Replaces the parts of torchvision that timm imports but its ViT never uses."""
  import torch

  def module(name, **attributes):
    made = types.ModuleType(name)
    made.__dict__.update(attributes, __spec__=importlib.util.spec_from_loader(name, None))
    sys.modules[name] = made
    return made

  class Unused:
    pass

  modes = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
  interpolation = enum.Enum("InterpolationMode", {mode.upper(): mode for mode in modes})

  functional = module("torchvision.transforms.functional", InterpolationMode=interpolation)
  transforms = module(
    "torchvision.transforms",
    functional=functional,
    ToTensor=Unused,
    InterpolationMode=interpolation,
  )
  misc = module("torchvision.ops.misc", FrozenBatchNorm2d=type("F", (torch.nn.Module,), {}))
  ops = module("torchvision.ops", misc=misc)
  sets = ("CIFAR10", "CIFAR100", "MNIST", "KMNIST", "FashionMNIST", "ImageFolder")
  datasets = module("torchvision.datasets", **dict.fromkeys(sets, Unused))
  module("torchvision", __version__="0", transforms=transforms, ops=ops, datasets=datasets)
