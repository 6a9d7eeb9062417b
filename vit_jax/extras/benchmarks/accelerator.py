"""Speed of training steps in bfloat16 on an accelerator, compared with timm and torch.compile.

Each case runs in its own process, so that running out of memory affects no other case. The batch is
the largest power of two that fits. MFU is relative to the rate of a matmul of large bfloat16
matrices on the same device. Without an accelerator, the program runs models of two blocks on tiny
images, which says nothing about speed, and marks the real cases as not measured.
"""

import math
import multiprocessing
import sys
from typing import NamedTuple

from vit_jax.extras.benchmarks import step as training_step
from vit_jax.extras.benchmarks.processes import in_process
from vit_jax.extras.experiments import timing
from vit_jax.process.machine import out_of_memory

MAX_BATCH = 1024


class Case(NamedTuple):
  """A training step to measure.

  Attributes:
    model: our name.
    timm: timm's name for the same model.
    side: of the images, pixels.
    options: fields of vit_jax.config.Model; None: timm's model in torch.
    depth: number of blocks; 0: the model's own.
  """

  model: str
  timm: str
  side: int
  options: dict | None
  depth: int = 0

  def settings(self) -> dict:
    """Fields of vit_jax.config.Model; those that are not given follow from the model's name."""
    options = self.options or {}
    if self.depth:
      return options | {"depth": self.depth}
    return options

  def __str__(self) -> str:
    how = "timm, torch.compile"
    if self.options is not None:
      how = ", ".join(["vit_jax", *(f"{key}={value}" for key, value in self.options.items())])
    return f"{self.model} {self.side} px, {how}"


MODELS = (
  ("ViT-S/16", "vit_small_patch16_224", 224),
  ("ViT-B/16", "vit_base_patch16_224", 224),
  ("ViT-L/16", "vit_large_patch16_224", 224),
  ("ViT-H/14", "vit_huge_patch14_224", 224),
  ("ViT-L/16", "vit_large_patch16_224", 512),
)
WAYS = (
  dict(attention="xla"),
  dict(attention="cudnn"),
  dict(attention="cudnn", scan=True),
  dict(attention="cudnn", scan=True, remat="dots"),
  dict(attention="cudnn", scan=True, remat="everything"),
)


def cases() -> list[Case]:
  """Every model with torch and with each of our settings."""
  return [Case(*model, options) for model in MODELS for options in (None, *WAYS)]


def small_cases() -> list[Case]:
  """Cases for a CPU: one small model, without cuDNN."""
  model = ("ViT-Ti/16", "vit_tiny_patch16_224", 32)
  ways = (None, dict(attention="xla"), dict(attention="xla", scan=True, remat="dots"))
  return [Case(*model, options, depth=2) for options in ways]


def measure() -> list[dict]:
  """Measures every case.

  Returns:
    One row for each case: name, batch, images_per_second, mfu, and ratio, its speed divided by that
    of torch for the same model. Numbers that could not be measured are None; `error` says why.
  """
  context = multiprocessing.get_context("spawn")
  device = in_process(context, _device)
  if "error" in device:
    sys.exit(f"benchmark: the device cannot be used: {device['error']}")
  on_cpu = device["platform"] == "cpu"
  measured_cases = small_cases() if on_cpu else cases()
  largest = 8 if on_cpu else MAX_BATCH
  rows = []
  torch_speed = {}
  for case in measured_cases:
    measured = _largest(context, case, largest=largest)
    speed = measured.get("images_per_second")
    if case.options is None:
      torch_speed[case[:3]] = speed
    other = torch_speed.get(case[:3])
    ratio = speed / other if speed and other else None
    rows.append(
      dict(
        name=str(case),
        batch=measured["batch"],
        images_per_second=speed,
        mfu=speed and speed * measured["flops"] / device["flops_per_second"],
        ratio=ratio,
        error=measured.get("error"),
      )
    )
  if on_cpu:
    rows += not_measured()
  return rows


def not_measured() -> list[dict]:
  """The rows of the real cases if there is no accelerator."""
  nothing = dict.fromkeys(("batch", "images_per_second", "mfu", "ratio"))
  return [dict(name=str(case), **nothing, error="not measured: no GPU") for case in cases()]


def _largest(context, case: Case, *, largest: int) -> dict:
  """Measures the case with the largest batch that fits."""
  batch = largest
  while True:
    measured = in_process(context, _time, case, batch) | {"batch": batch}
    if "error" not in measured or batch == 1 or not out_of_memory(measured["error"]):
      return measured
    batch //= 2


def _device() -> dict:
  """The platform, and the FLOP/s of a matmul of large bfloat16 matrices."""
  import jax
  import jax.numpy as jnp

  platform = jax.devices()[0].platform
  size = 512 if platform == "cpu" else 8192
  x = jax.random.normal(jax.random.key(0), (size, size), jnp.bfloat16)  # zeros and ones are faster
  matmul = jax.jit(jnp.matmul)
  seconds = timing.median_seconds(lambda: jax.block_until_ready(matmul(x, x)))
  return dict(platform=platform, flops_per_second=2 * size**3 / seconds)


def _time(case: Case, batch: int) -> dict:
  """Images per second of a case, and the FLOPs of training on one image."""
  from vit_jax import models
  from vit_jax.config import Model
  from vit_jax.models import vit_costs

  size = dict(side=case.side, batch=batch)
  options = case.settings()
  module = models.configured(Model(name=case.model, num_classes=training_step.CLASSES, **options))
  if case.options is None:
    step = training_step.torch_step(case.timm, **size, compiled=True, half=True, depth=case.depth)
  else:
    step = training_step.jax_step(case.model, **size, compute_dtype="bfloat16", **options)
  return dict(
    images_per_second=batch / timing.median_seconds(step, enough=math.inf),
    flops=vit_costs.training_flops(module.macs(case.side, case.side)),
  )
