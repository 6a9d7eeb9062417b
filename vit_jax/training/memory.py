"""How many parts a batch must have, for a step to fit into the devices' memory."""

from collections.abc import Callable

import jax

from vit_jax.config import Config
from vit_jax.config.resolve import with_value
from vit_jax.devices import chips
from vit_jax.devices import mesh as meshes
from vit_jax.process import agreement, memory
from vit_jax.registry import CALLBACKS
from vit_jax.training.run import Run

GIB = 2**30


def fewest_parts(config: Config, make: Callable[[Config], Run]) -> tuple[int, str]:
  """The fewest parts of a batch with which a step fits, by the compiler's count; and that count.

  Parts are computed one after another, so memory falls with their number. The programs are kept by
  JAX's cache of compiled programs, so that the run compiles nothing again.

  Args:
    config: the settings.
    make: settings -> the run.
  """
  parts = 1
  while True:
    run = make(with_value(config, "accumulation", parts))
    device = run.mesh.devices.flat[0]
    needed, limit = step_bytes(run), memory_of(device)
    fits = agreement.broadcast_bool(needed <= limit)
    each = config.batch_size // (parts * meshes.groups(run.mesh))  # images of a device in a part
    if fits or each % 2:
      return parts, f"a step needs {in_gib(needed)} of a device's {in_gib(limit)}"
    parts *= 2


def step_bytes(run: Run) -> float:
  """The memory of a compiled step on a device; infinite if the compiler finds it too large.

  Raises:
    JaxRuntimeError: the step cannot be compiled for another reason.
  """
  try:
    lowered = run.update.lower(run.abstract, run.abstract_batch())
    analysis = lowered.compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:
    if not memory.lacks_memory(error):
      raise
    return float("inf")
  return peak_bytes(analysis) + copies_of_state(run.config) * analysis.alias_size_in_bytes


def copies_of_state(config: Config) -> int:
  """How many copies of the state, which a step overwrites, callbacks have on the devices."""
  return sum(kind.copies_of_state(config) for kind in CALLBACKS.values())


def peak_bytes(analysis) -> int:
  """All memory of a compiled program, from its `memory_analysis()`."""
  return (
    analysis.argument_size_in_bytes
    + analysis.temp_size_in_bytes
    + analysis.output_size_in_bytes
    - analysis.alias_size_in_bytes
    + analysis.generated_code_size_in_bytes
  )


def memory_of(device: jax.Device) -> float:
  """The bytes that a step may take on a device; devices of a CPU share the memory that is there."""
  if device.platform == "cpu":
    return memory.most() / jax.local_device_count()
  if limit := (device.memory_stats() or {}).get("bytes_limit"):
    return limit
  chip = chips.chip(device.device_kind)
  return chip.hbm_bytes if chip and chip.hbm_bytes else float("inf")


def in_gib(size: float) -> str:
  """A size of memory in words."""
  return f"{size / GIB:.2f} GiB" if size < float("inf") else "more memory"
