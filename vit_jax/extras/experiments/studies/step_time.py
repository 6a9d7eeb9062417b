"""Estimates training times of a study on these devices, from measured steps. Imports JAX."""

import collections
import dataclasses
import math
import time

import jax

from vit_jax.config import Config, Duration
from vit_jax.config.resolve import resolve, with_value
from vit_jax.extras.experiments import step_program, timing
from vit_jax.extras.experiments.studies.jobs import Cost
from vit_jax.process import machine
from vit_jax.training.facts import of_devices
from vit_jax.training.pace import peak_bytes

BUDGET = 60.0  # seconds, after which the remaining steps are estimated from their FLOPs
MAX_FLOPS = {"cpu": 2e11}  # of a measured step; larger steps are measured on fewer images
MAX_FLOPS_ELSEWHERE = 2e14


@dataclasses.dataclass(frozen=True)
class Speed:
  """A measured step: seconds to compile it, and seconds and FLOPs per image."""

  compiling: float
  image: float
  flops: float


def measured(costs: dict[str, Cost], configs: dict[str, Config]) -> dict[str, Cost]:
  """The costs of runs, with the seconds that they compile and train on these devices.

  Different steps are measured, those with most work first, until `BUDGET` is spent. The others are
  assumed to be as fast as the measured step with the most similar FLOPs.

  Args:
    costs: the cost of each run, by its name.
    configs: the config of each run, by its name; runs that train nothing are not measured.
  """
  configs = {name: with_compute_dtype(c) for name, c in configs.items() if costs[name].flops}
  keys = {name: step_key(config) for name, config in configs.items()}
  work = collections.Counter()
  for name, key in keys.items():
    work[key] += costs[name].work(costs[name].steps or 1)
  by_key = {key: name for name, key in keys.items()}
  speeds = {}
  began = time.monotonic()
  for key, _ in work.most_common():
    if not speeds or time.monotonic() - began <= BUDGET:
      speeds[key] = measured_speed(configs[by_key[key]], costs[by_key[key]])
  seconds = {name: run_seconds(costs[name], speeds, key) for name, key in keys.items()}
  return costs | {name: dataclasses.replace(costs[name], seconds=s) for name, s in seconds.items()}


def with_compute_dtype(config: Config) -> Config:
  """The config with the compute dtype of a run on these devices."""
  return resolve(config, of_devices())


def step_key(config: Config) -> str:
  """A key that differs between compiled steps of different speeds."""
  return repr(
    (
      config.model,
      config.objective,
      config.batch_size,
      config.accumulation,
      config.data.image_size,
      config.mesh,
      config.optimizer.kind,
      config.optimizer.trainable,
      config.lora,
      config.optimizer.averages,
    )
  )


def run_seconds(cost: Cost, speeds: dict[str, Speed | None], key: str) -> float | None:
  """Seconds of a whole run; None if its length is not known, or its step lacks memory."""
  if cost.steps is None:
    return None
  near = speeds.get(key)
  if key not in speeds:
    others = [speed for speed in speeds.values() if speed]
    near = min(others, key=lambda speed: abs(math.log(speed.flops / cost.flops)), default=None)
  if near is None:
    return None
  return near.compiling + cost.steps * cost.batch_size * near.image * cost.flops / near.flops


def measured_speed(config: Config, cost: Cost) -> Speed | None:
  """Compiles and measures a step, on few enough images to be short; None if memory is lacking."""
  most = MAX_FLOPS.get(jax.default_backend(), MAX_FLOPS_ELSEWHERE) * jax.device_count()
  unit = jax.device_count() * config.parts
  images = min(config.batch_size, max(int(most / cost.flops) // unit, 1) * unit)
  began = time.monotonic()
  short = {"batch_size": images, "duration": Duration(steps=1), "schedule.warmup": Duration()}
  for key, value in short.items():
    config = with_value(config, key, value)
  made = step_program.planned(config, jax.devices())
  try:
    compiled = made.lowered().compile()
    compiling = time.monotonic() - began
    needed = peak_bytes(compiled.memory_analysis())
    if jax.default_backend() == "cpu" and needed > machine.free_memory():
      return None
    seconds = timing.median_seconds(step_program.stepper(made, compiled))
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not machine.lacks_memory(error):
      raise
    return None
  return Speed(compiling, seconds / images, cost.flops)
