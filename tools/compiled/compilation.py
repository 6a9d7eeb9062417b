"""Compiles the program of a run for TPUs with the real compiler, on a machine without TPUs.

The package libtpu compiles for any topology. The program is the training step of the main job
itself, with its mesh and shardings.
"""

import dataclasses
import importlib.util
import math
import re

import jax
from jax.experimental import topologies

from compiled import program_text
from vit_jax import models
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.devices import mesh as meshes
from vit_jax.devices.chips import Chip, chip
from vit_jax.experiments import step_program
from vit_jax.training import run as runs

TOPOLOGY = re.compile(r"[A-Za-z0-9]+:[1-9]\d*(x[1-9]\d*){1,2}(_twisted|_untwisted)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Program:
  """The compiler's numbers for one step; bytes and FLOPs are for one device.

  Attributes:
    devices: number of devices.
    device_kind: JAX's name for the kind of device.
    argument_bytes: state and batch.
    temporary_bytes: activations, gradients and other temporaries.
    peak_bytes: total memory.
    fits: whether the compiler made a program; some of the memory is reserved.
    flops: as the compiler counts them; it counts the body of a loop once.
    step_seconds: from the cycles that the compiler counts for each operation; None without a TPU.
    optimal_seconds: the compiler's sum over the operations, each at the full rate of the matrix
      units or of the memory; None under scan and accumulation, or if the compiler gives none.
    collectives: {kind: (count, bytes)}; those in a loop count once for each iteration.
    text: the instructions; empty if the program does not fit.
  """

  devices: int
  device_kind: str
  argument_bytes: int
  temporary_bytes: int
  peak_bytes: int
  fits: bool
  flops: float | None
  step_seconds: float | None
  optimal_seconds: float | None
  collectives: dict[str, tuple[int, int]]
  text: str = dataclasses.field(default="", repr=False)


def devices_of(topology: str):
  """The devices of a topology, such as "v3:16x16".

  Raises:
    ConfigError: there is no topology with this name.
    RunError: libtpu is not installed.
  """
  examples = "examples: v3:16x16 (Cloud's v3-512), v4:4x4x4 (v4-128), v5e:16x16, v6e:16x16."
  if not TOPOLOGY.fullmatch(topology):  # libtpu aborts the process for some malformed names
    raise ConfigError(f"A topology is named KIND:AxB or KIND:AxBxC, not {topology!r}; {examples}")
  # On v4, JAX treats both cores of a chip as one device, and libtpu must be told so.
  cores = {"chip_config_name": "megacore"} if topology.startswith("v4:") else {}
  try:
    return topologies.get_topology_desc(platform="tpu", topology_name=topology, **cores).devices
  except Exception as error:  # the library may raise anything
    if importlib.util.find_spec("libtpu") is None:
      raise RunError(
        "The TPU compiler is not installed; install it: pip install --target=.libtpu libtpu, and "
        "set PYTHONPATH=.libtpu."
      ) from error
    reason = str(error).partition("\n")[0]
    raise ConfigError(
      f"The TPU compiler knows no topology {topology!r} ({reason}); {examples}"
    ) from error


def compile_step(config: Config, devices) -> Program:
  """Compiles the training step of `config` for `devices`.

  Raises:
    ConfigError: the batch or the mesh does not fit the devices.
  """
  run = step_program.planned(config, devices)
  return program(run, run.update, (run.abstract, step_program.abstract_batch(run)))


def program(run: runs.Run, function, arguments) -> Program:
  """Compiles a jitted function for the devices of a plan; `arguments` are shapes."""
  devices, config = list(run.mesh.devices.flat), run.config
  common = dict(devices=len(devices), device_kind=devices[0].device_kind)
  try:
    compiled = function.lower(*arguments).compile()
  except jax.errors.JaxRuntimeError as error:
    temporaries = refused_bytes(str(error))
    if temporaries is None:
      raise
    held = sum(bytes_per_device(x) for x in jax.tree.leaves(arguments))
    return Program(
      **common,
      argument_bytes=held,
      temporary_bytes=temporaries,
      peak_bytes=held + temporaries,
      fits=False,
      flops=None,
      step_seconds=None,
      optimal_seconds=None,
      collectives={},
    )
  memory, cost, text = compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
  cycles = program_text.cycles(text)
  unrolled = not config.model.scan and config.parts == 1
  return Program(
    **common,
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    peak_bytes=step_program.peak_bytes(memory),
    fits=True,
    flops=cost["flops"],
    step_seconds=cycles and cycles / known(devices[0].device_kind).clock_hz,
    optimal_seconds=optimal_seconds(cost) if unrolled else None,
    collectives=program_text.collectives(text),
    text=text,
  )


def optimal_seconds(cost: dict) -> float | None:
  """The compiler's optimistic estimate of an unrolled step; None if it gives none.

  Each custom call counts as -1 second, so the estimate is valid only without custom calls, as on
  TPU v3.
  """
  seconds = cost.get("optimal_seconds", 0.0)
  return seconds if seconds > 0 else None


def known(device_kind: str) -> Chip:
  """The chip of a kind of TPU.

  Raises:
    RunError: the memory and clock of this kind are not known.
  """
  listed = chip(device_kind)
  if listed is None or not listed.hbm_bytes:
    raise RunError(
      f"{device_kind!r} is not known; add its memory and clock to vit_jax/devices/chips.py."
    )
  return listed


def bytes_per_device(x: jax.ShapeDtypeStruct) -> int:
  """One device's share of an array."""
  return math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize


def refused_bytes(message: str) -> int | None:
  """Bytes of temporaries if a program needs too much memory; None for any other error message."""
  match = re.search(r"temporaries \(([\d.]+)([KMGT])\) exceeds available HBM", message)
  return match and int(float(match[1]) * 2 ** {"K": 10, "M": 20, "G": 30, "T": 40}[match[2]])


def step_flops(config: Config) -> int:
  """FLOPs of one update on all devices, from the formulas of the model."""
  objective = config.objective.configured(config, models.configured(config.model))
  return config.batch_size * objective.training_flops(config.data.image_size)


def smaller(config: Config, program: Program, compiled):
  """Yields settings that need less memory than `config`, the fastest first: (overrides, program).

  They are accumulation, then fsdp, then both, then remat with the largest values of both.

  Args:
    config: config of `program`, which the compiler refused.
    compiled: function from overrides to their program; called only when a pair is requested.
  """

  def accumulated(split: dict, refused: Program):
    for parts in enough_parts(config, refused):
      overrides = split | {"accumulation": parts}
      yield overrides, compiled(overrides)

  yield from accumulated({}, program)
  most = max(n for n in meshes.divisors(program.devices) if n <= max(64, config.mesh.fsdp))
  split = {"mesh.fsdp": most} | ({"mesh.data": 0} if config.mesh.data else {})
  if most > config.mesh.fsdp:
    program = compiled(split)
    yield split, program
    yield from accumulated(split, program)
  least = split | {"accumulation": config.batch_size // program.devices}
  policies = ("none", "dots", "everything")
  for remat in policies[policies.index(config.model.remat) + 1 :]:
    overrides = least | {"model.remat": remat}
    yield overrides, compiled(overrides)


def enough_parts(config: Config, refused: Program) -> list[int]:
  """Larger numbers of parts for accumulation, enough if accumulation divided all temporaries.

  Empty if the state and the batch alone are larger than the memory of a device.
  """
  hbm = known(refused.device_kind).hbm_bytes
  if refused.argument_bytes > hbm:
    return []
  least = refused.temporary_bytes * config.parts / hbm
  parts = meshes.divisors(config.batch_size // refused.devices)
  return [n for n in parts if n > max(least, config.parts)]


def overridden(config: Config, overrides: dict) -> Config:
  """The config with {"group.key": value} replaced."""
  for key, value in overrides.items():
    *path, last = key.split(".")
    if path:
      inner = dataclasses.replace(getattr(config, path[0]), **{last: value})
      config = dataclasses.replace(config, **{path[0]: inner})
    else:
      config = dataclasses.replace(config, **{last: value})
  return config
