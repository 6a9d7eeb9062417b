"""Compiles the program of a run with the real compiler, on a machine without the devices.

The program is the training step of the main job itself, with its mesh and shardings.
"""

import dataclasses
import hashlib

import jax

from vit_jax.config import AUTO, Config
from vit_jax.config.resolve import with_value
from vit_jax.devices import mesh as meshes
from vit_jax.extras.compiled import platforms, program_text
from vit_jax.extras.compiled.platform import known
from vit_jax.extras.experiments import step_program
from vit_jax.training import run as runs
from vit_jax.training.pace import copies_of_state, peak_bytes


@dataclasses.dataclass(frozen=True)
class Program:
  """The compiler's numbers for one step; bytes and FLOPs are for one device.

  Attributes:
    devices: number of devices.
    groups: number of parts that a batch is split into: devices along config.mesh.model share one.
    device_kind: JAX's name for the kind of device.
    usable_bytes: of a device's memory.
    argument_bytes: state and batch.
    temporary_bytes: activations, gradients and other temporaries.
    peak_bytes: total memory.
    fits: whether it needs no more than the usable memory. TPUs reserve some of it, and their
      compiler refuses programs that need more.
    flops: as the compiler counts them; it counts the body of a loop once. None on GPUs.
    step_seconds: from the cycles that the compiler counts for each operation; None without a TPU.
    optimal_seconds: the compiler's sum over the operations, each at the full rate of the matrix
      units or of the memory; None under scan and accumulation, or if the compiler gives none.
    collectives: {kind: (count, bytes)}; those in a loop count once for each iteration.
    second_state_bytes: of `peak_bytes`, those for the second state that config.verify_every needs.
    hosts: number of machines.
    made_from: a name for what the compiler was given; equal names, equal programs.
    text: the instructions; empty if the compiler made no program.
  """

  devices: int
  groups: int
  device_kind: str
  usable_bytes: float
  argument_bytes: int
  temporary_bytes: int
  peak_bytes: int
  fits: bool
  flops: float | None
  step_seconds: float | None
  optimal_seconds: float | None
  collectives: dict[str, tuple[int, int]]
  second_state_bytes: int = 0
  hosts: int = 1
  made_from: str = ""
  text: str = dataclasses.field(default="", repr=False)


def compile_step(config: Config, devices, *, unlimited: bool = False) -> Program:
  """Compiles the training step of `config` for `devices`.

  Args:
    config: the recipe.
    devices: described ones, or those of this machine.
    unlimited: whether XLA for GPUs computes nothing again to save memory.

  Raises:
    ConfigError: the batch or the mesh does not fit the devices.
  """
  run = step_program.planned(config, devices)
  return program(run, run.update, (run.abstract, run.abstract_batch()), unlimited=unlimited)


def step_name(config: Config, devices) -> str:
  """`Program.made_from` of the training step of `config`, without compiling it."""
  run = step_program.planned(config, devices)
  return _name(run.lowered())


def _name(lowered) -> str:
  """A name for what the compiler is given; it has no line numbers of our code."""
  return hashlib.sha256(lowered.as_text().encode()).hexdigest()[:12]


def program(run: runs.Run, function, arguments, *, unlimited: bool = False) -> Program:
  """Compiles a jitted function for the devices of a plan; `arguments` are shapes."""
  config = run.config
  devices = list(run.mesh.devices.flat)
  platform = platforms.of(devices[0].platform)
  kind = devices[0].device_kind
  hosts = len({device.process_index for device in devices})
  common = dict(devices=len(devices), device_kind=kind, hosts=hosts, groups=meshes.groups(run.mesh))
  common["usable_bytes"] = platform.usable(kind)
  lowered = function.lower(*arguments)
  common["made_from"] = _name(lowered)
  options = platform.options
  if unlimited:
    options = options | platform.unlimited
  try:
    compiled = lowered.compile(compiler_options=options)
  except jax.errors.JaxRuntimeError as error:
    temporaries = platform.refused(str(error))
    if temporaries is None:
      raise
    return _refused(run, arguments, temporaries, common)
  memory = compiled.memory_analysis()
  cost = compiled.cost_analysis() or {}
  text = compiled.as_text()
  cycles = program_text.cycles(text)
  unrolled = not config.model.scan and config.parts == 1
  optimal = optimal_seconds(cost) if unrolled else None
  second = copies_of_state(config) * memory.alias_size_in_bytes
  peak = peak_bytes(memory) + second
  return Program(
    **common,
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    peak_bytes=peak,
    second_state_bytes=second,
    fits=peak <= platform.usable(kind),
    flops=cost.get("flops"),
    step_seconds=cycles and cycles / known(kind).clock_hz,
    optimal_seconds=optimal,
    collectives=program_text.collectives(text),
    text=text,
  )


def _refused(run: runs.Run, arguments, temporaries: int, common: dict) -> Program:
  """A program that the compiler refused, because it needs too much memory."""
  held = meshes.bytes_per_device(arguments)
  second = copies_of_state(run.config) * meshes.bytes_per_device(run.abstract)
  return Program(
    **common,
    second_state_bytes=second,
    argument_bytes=held,
    temporary_bytes=temporaries,
    peak_bytes=held + temporaries + second,
    fits=False,
    flops=None,
    step_seconds=None,
    optimal_seconds=None,
    collectives={},
  )


def optimal_seconds(cost: dict) -> float | None:
  """The compiler's optimistic estimate of an unrolled step; None if it gives none.

  Each custom call counts as -1 second, so the estimate is valid only without custom calls, as on
  TPU v3.
  """
  seconds = cost.get("optimal_seconds", 0.0)
  if seconds <= 0:
    return None
  return seconds


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
  of_model = program.devices // config.mesh.model
  most = max(n for n in meshes.divisors(of_model) if n <= max(64, config.mesh.fsdp))
  split = {"mesh.fsdp": most}
  if config.mesh.data != AUTO:
    split["mesh.data"] = AUTO
  if most > config.mesh.fsdp:
    program = compiled(split)
    yield split, program
    yield from accumulated(split, program)
  least = split | {"accumulation": config.batch_size // program.groups}
  policies = ("none", "dots", "everything")
  for remat in policies[policies.index(config.model.remat) + 1 :]:
    overrides = least | {"model.remat": remat}
    yield overrides, compiled(overrides)


def enough_parts(config: Config, refused: Program) -> list[int]:
  """Larger numbers of parts for accumulation, enough if accumulation divided all temporaries.

  Empty if the state and the batch alone are larger than the memory of a device.
  """
  if refused.argument_bytes + refused.second_state_bytes > refused.usable_bytes:
    return []
  least = refused.temporary_bytes * config.parts / refused.usable_bytes
  parts = meshes.divisors(config.batch_size // refused.groups)
  return [n for n in parts if n > max(least, config.parts)]


def overridden(config: Config, overrides: dict) -> Config:
  """The config with {"group.key": value} replaced."""
  for key, value in overrides.items():
    config = with_value(config, key, value)
  return config
