"""The program of a run on TPUs that are not there, compiled by the real compiler.

The package libtpu compiles for any topology on a machine without TPUs. What is compiled is the main
job's own step, with its mesh and shardings.
"""

import dataclasses
import importlib.util
import math
import re

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from vit_jax import models, recipes
from vit_jax.config import Config, ConfigError, RunError
from vit_jax.devices import mesh as meshes
from vit_jax.devices.chips import Chip, chip
from vit_jax.evaluation.opening import Evaluations
from vit_jax.learning import objectives
from vit_jax.tpu import program_text
from vit_jax.training import plan
from vit_jax.training.opening import OpenedData

TOPOLOGY = re.compile(r"[A-Za-z0-9]+:[1-9]\d*(x[1-9]\d*){1,2}(_twisted|_untwisted)?", re.ASCII)
UNKNOWN_LENGTH = 10**9  # examples; the length of the schedule does not change the program


@dataclasses.dataclass(frozen=True)
class Imagined:
  """Stands for training data that nobody reads: its length, its classes, its kind of labels."""

  length: int
  class_names: tuple[str, ...]
  multi_label: bool

  def __len__(self) -> int:
    return self.length


@dataclasses.dataclass(frozen=True)
class Program:
  """What the compiler says of one step; bytes and FLOPs are of one device.

  Attributes:
    devices: how many.
    device_kind: of each, as JAX calls it.
    argument_bytes: state and batch.
    temporary_bytes: activations, gradients and the like.
    peak_bytes: all together.
    fits: whether the compiler made a program; a little of the memory is not for programs.
    flops: counted by the compiler, to which the body of a loop is run once.
    step_seconds: from the cycles that the compiler counts for each operation; None without a TPU.
    optimal_seconds: the compiler's sum of what each operation takes at the full rate of the matrix
      units or of the memory; None under scan and accumulation, and where it gives none.
    collectives: {kind: (count, bytes)}, in loops as often as they run.
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


def devices_of(topology: str):
  """The devices of a topology, such as "v3:16x16".

  Raises:
    ConfigError: no topology is called so.
    RunError: libtpu is not installed.
  """
  examples = "examples: v3:16x16 (Cloud's v3-512), v4:4x4x4 (v4-128), v5e:16x16, v6e:16x16."
  if not TOPOLOGY.fullmatch(topology):  # at some of these libtpu aborts the process
    raise ConfigError(f"A topology is named KIND:AxB or KIND:AxBxC, not {topology!r}; {examples}")
  # On v4 JAX sees both cores of a chip as one device, of which the library must be told.
  cores = {"chip_config_name": "megacore"} if topology.startswith("v4:") else {}
  try:
    return topologies.get_topology_desc(platform="tpu", topology_name=topology, **cores).devices
  except Exception as error:  # whatever the library says
    if importlib.util.find_spec("libtpu") is None:
      raise RunError(
        "The TPU compiler is not here; install it: pip install --target=.libtpu libtpu, and give "
        "PYTHONPATH=.libtpu."
      ) from error
    reason = str(error).partition("\n")[0]
    raise ConfigError(
      f"The TPU compiler knows no topology {topology!r} ({reason}); {examples}"
    ) from error


def compile_step(config: Config, devices) -> Program:
  """Compiles the training step of `config` for `devices`.

  Raises:
    ConfigError: the batch or the mesh does not suit the devices.
  """
  imagined = Imagined(
    length=recipes.examples_of(config) or UNKNOWN_LENGTH,
    class_names=tuple(str(i) for i in range(config.model.num_classes)),
    multi_label=config.loss.kind == "sigmoid",
  )
  made = plan.make(config, OpenedData(imagined, Evaluations()), devices)
  arguments = (made.abstract, abstract_batch(made))
  common = dict(devices=len(devices), device_kind=devices[0].device_kind)
  try:
    compiled = plan.jit_step(made).lower(*arguments).compile()
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
  unrolled = not config.model.scan and config.accumulation == 1
  return Program(
    **common,
    argument_bytes=memory.argument_size_in_bytes,
    temporary_bytes=memory.temp_size_in_bytes,
    peak_bytes=memory.argument_size_in_bytes
    + memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.generated_code_size_in_bytes,
    fits=True,
    flops=cost["flops"],
    step_seconds=cycles and cycles / known(devices[0].device_kind).clock_hz,
    optimal_seconds=optimal_seconds(cost) if unrolled else None,
    collectives=program_text.collectives(text),
  )


def optimal_seconds(cost: dict) -> float | None:
  """The compiler's optimistic estimate of an unrolled step; None where it gives none.

  Each custom call counts as minus a second, so it is sound where there are none, as on TPU v3.
  """
  seconds = cost.get("optimal_seconds", 0.0)
  return seconds if seconds > 0 else None


def abstract_batch(made: plan.Plan) -> dict:
  """Shapes, types and shardings of the plan's batch."""
  sharding = meshes.batch_sharding(made.mesh)
  size, side = made.config.batch_size, made.config.data.image_size
  shapes = dict(image=((size, side, side, 3), jnp.uint8), mask=((size,), jnp.float32))
  if made.objective.needs_labels:
    several = (size, made.config.model.num_classes), jnp.uint8
    shapes["labels"] = several if made.data.train.multi_label else ((size,), jnp.int32)
  return {
    name: jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    for name, (shape, dtype) in shapes.items()
  }


def known(device_kind: str) -> Chip:
  """The chip of a kind of TPU.

  Raises:
    RunError: its memory and clock are not known.
  """
  found = chip(device_kind)
  if found is None or not found.hbm_bytes:
    raise RunError(
      f"{device_kind!r} is not known; add its memory and clock to vit_jax/devices/chips.py."
    )
  return found


def bytes_per_device(x: jax.ShapeDtypeStruct) -> int:
  """One device's share of an array."""
  return math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize


def refused_bytes(message: str) -> int | None:
  """Temporaries of a program that the compiler refuses for its memory; None: another complaint."""
  match = re.search(r"temporaries \(([\d.]+)([KMGT])\) exceeds available HBM", message)
  return match and int(float(match[1]) * 2 ** {"K": 10, "M": 20, "G": 30, "T": 40}[match[2]])


def step_flops(config: Config) -> int:
  """FLOPs of one whole update on all devices, analytic."""
  objective = objectives.configured(config, models.configured(config.model))
  return config.batch_size * objective.training_flops(config.data.image_size)


def smaller(config: Config, program: Program, compiled):
  """Settings that need less memory than `config`, the cheapest in time first: (overrides, program).

  Accumulation, then fsdp, then both, then remat with the most of both.

  Args:
    config: of `program`, which the compiler refused.
    compiled: makes the program of overrides; called for each pair when it is asked for.
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
  """More parts to accumulate in; as many as would do if they divided all temporaries.

  None where the state and the batch alone are more than a device holds.
  """
  hbm = known(refused.device_kind).hbm_bytes
  if refused.argument_bytes > hbm:
    return []
  least = refused.temporary_bytes * config.accumulation / hbm
  parts = meshes.divisors(config.batch_size // refused.devices)
  return [n for n in parts if n > max(least, config.accumulation)]


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
