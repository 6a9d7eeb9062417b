"""How many parts a batch needs to fit into memory, and how long a run will take."""

import itertools
import time
from collections.abc import Callable

import jax

from vit_jax.config import Config
from vit_jax.config.fields import switched_on
from vit_jax.config.resolve import with_value
from vit_jax.devices import chips
from vit_jax.devices import mesh as meshes
from vit_jax.learning import train_step
from vit_jax.process import agreement, machine
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
    analysis = run.lowered().compile().memory_analysis()
  except jax.errors.JaxRuntimeError as error:
    if not machine.lacks_memory(error):
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
    return machine.most_memory() / jax.local_device_count()
  statistics = device.memory_stats() or {}
  if limit := statistics.get("bytes_limit"):
    return limit
  chip = chips.CHIPS.get(device.device_kind)
  return chip.hbm_bytes if chip and chip.hbm_bytes else float("inf")


def in_gib(size: float) -> str:
  """A size of memory in words."""
  if size == float("inf"):
    return "more memory"
  return f"{size / GIB:.2f} GiB"


FEWEST = 30  # steps; a shorter run is over soon
SETTLING = 3  # untimed steps: the first one compiles, and their batches were prepared ahead
SECONDS = 3.0  # steps are timed for this long
MOST = 20  # steps that are timed at most
SCORED = 0.5  # time for scoring an image, relative to training on it: a forward pass is a third


def expected_seconds(run: Run) -> float | None:
  """Estimated seconds from the first step to the end, from timed steps on the run's own images.

  The timed steps use a state that is thrown away. Evaluations are estimated; start-up, saving and
  pictures are left out. The result is right within a factor of two for runs of more than a minute,
  if the machine does nothing else before and after.

  Returns:
    None for a run of few steps, or if the devices have too little memory.
  """
  left = run.steps.total - run.resume_point.step
  if left < FEWEST:
    return None
  try:
    a_step = step_seconds(run)
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not machine.lacks_memory(error):
      raise
    return None  # the run itself reports it
  return a_step * (left + SCORED * scored_images(run) / run.config.batch_size)


def step_seconds(run: Run, clock: Callable[[], float] = time.monotonic) -> float:
  """Seconds per step, including the wait for its images; all processes call it together."""
  state = train_step.create_state(run.init, run.abstract)
  with run.batches() as batches:
    for batch in itertools.islice(batches, SETTLING):
      state, metrics = run.update(state, batch)
    jax.block_until_ready(metrics)
    steps = 0
    begin = clock()
    while agreement.broadcast_bool(not steps or (steps < MOST and clock() - begin < SECONDS)):
      before = metrics
      state, metrics = run.update(state, next(batches))
      jax.block_until_ready(before)  # like the loop, which reads the previous step's metrics
      steps += 1
    jax.block_until_ready(metrics)
    return (clock() - begin) / steps


def scored_images(run: Run) -> int:
  """The images of all evaluations that are left."""
  every = run.steps.evaluate
  total = run.steps.total
  times = 0
  if every:
    times = sum(step % every == 0 for step in range(run.resume_point.step + 1, total + 1))
  if not every or total % every:
    times += 1  # after the last step
  return times * sum(len(named.source) for named in run.data.evaluations.datasets)
