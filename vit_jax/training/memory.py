"""How many microbatches a batch must be split into for a step to fit in device memory."""

from collections.abc import Callable

import jax

from vit_jax.config import Config
from vit_jax.config.fields import switched_on
from vit_jax.config.resolve import with_value
from vit_jax.devices import chips
from vit_jax.devices import mesh as meshes
from vit_jax.process import agreement, memory
from vit_jax.registry import CALLBACKS
from vit_jax.training.run import Run

GIB = 2**30


def fewest_parts(config: Config, make: Callable[[Config], Run]) -> tuple[int, str]:
  """The fewest microbatches with which a step fits in memory, and its memory use in words.

  Microbatches are computed one after another, so more of them need less memory. JAX's compilation
  cache keeps the programs, so the run does not compile them again.

  Args:
    config: the settings.
    make: builds the run from the settings.
  """
  microbatches = 1
  while True:
    run = make(with_value(config, "accumulation", microbatches))
    needed = step_bytes(run)
    limit = memory_of(run.mesh.devices.flat[0])
    fits = agreement.broadcast_bool(needed <= limit)
    images_per_device = config.batch_size // (microbatches * meshes.groups(run.mesh))
    if fits or images_per_device % 2:
      return microbatches, f"a step needs {in_gib(needed)} of a device's {in_gib(limit)}"
    microbatches *= 2


def step_bytes(run: Run) -> float:
  """The bytes that a compiled step needs on a device; infinite if it does not fit.

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
  """How many extra copies of the state callbacks keep on the devices."""
  return sum(kind.copies_of_state(config) for kind in switched_on(CALLBACKS, config))


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
  """The bytes that a step may take on a device; CPU devices share the memory of the machine."""
  if device.platform == "cpu":
    return memory.most() / jax.local_device_count()
  statistics = device.memory_stats() or {}
  if limit := statistics.get("bytes_limit"):
    return limit
  chip = chips.chip(device.device_kind)
  return chip.hbm_bytes if chip and chip.hbm_bytes else float("inf")


def in_gib(size: float) -> str:
  """A size of memory in words."""
  if size == float("inf"):
    return "more memory"
  return f"{size / GIB:.2f} GiB"
