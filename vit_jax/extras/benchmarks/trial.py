"""One trial: a program compiled, and run if it fits."""

import functools

import jax

from vit_jax.data.batches import normalize
from vit_jax.devices import mesh as meshes
from vit_jax.extras.benchmarks import processes
from vit_jax.extras.benchmarks.case import TRAINING, Case
from vit_jax.extras.compiled import compilation
from vit_jax.extras.experiments import step_program, timing
from vit_jax.learning import train_step
from vit_jax.process.machine import lacks_memory
from vit_jax.training.pace import peak_bytes
from vit_jax.training.run import Run


def device() -> dict:
  """The devices at hand: platform, kind and count."""
  devices = jax.devices()
  return dict(platform=devices[0].platform, kind=devices[0].device_kind, count=len(devices))


def measured(case: Case, batch: int, memory: int) -> dict:
  """Compiles a program for the devices at hand, and runs it, in a process of its own.

  On a CPU this process gets a limit: the compiler's count leaves out what libraries take.

  Args:
    case: what is measured.
    batch: images for each device.
    memory: bytes that a program may use on a CPU; other devices have memory of their own.

  Returns:
    fits, and seconds: the median time of a step; None if it does not fit.
  """
  on_cpu = jax.default_backend() == "cpu"
  compute_dtype = "float32" if on_cpu else "bfloat16"
  config = case.config(batch * jax.device_count(), compute_dtype)
  run = step_program.planned(config, jax.devices())
  function, shapes = program(case.what, run)
  try:
    compiled = function.lower(*shapes).compile()
    if on_cpu and peak_bytes(compiled.memory_analysis()) > memory:
      return dict(fits=False, seconds=None)
    if on_cpu:
      processes.limit_data(memory)
    return dict(fits=True, seconds=timing.median_seconds(stepper(case.what, run, compiled)))
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not lacks_memory(error):
      raise
    return dict(fits=False, seconds=None)


def estimated(case: Case, batch: int, devices) -> dict:
  """As `measured`, from the TPU compiler, without a TPU; seconds are its cycles."""
  run = step_program.planned(case.config(batch * len(devices), "bfloat16"), devices)
  try:
    compiled = compilation.program(run, *program(case.what, run))
  except jax.errors.JaxRuntimeError as error:
    if not lacks_memory(error):
      raise
    return dict(fits=False, seconds=None)
  return dict(fits=compiled.fits, seconds=compiled.step_seconds)


def program(what: str, run: Run):
  """The jitted function of a case, and the shapes of its arguments."""
  batch = run.abstract_batch()
  if what == TRAINING:
    return run.update, (run.abstract, batch)
  function = jax.jit(meshes.on(run.mesh, functools.partial(logits, run.model)))
  return function, (run.abstract.params, batch["image"])


def logits(model, params: dict, images: jax.Array) -> jax.Array:
  """The model's logits of (B, H, W, 3) images of bytes."""
  return model.apply({"params": params}, normalize(images, model.dtype), train=False)[0]


def stepper(what: str, run: Run, compiled):
  """A function that runs a compiled program once, to its end."""
  if what == TRAINING:
    return step_program.stepper(run, compiled)
  batch = step_program.random_batch(run)
  params = train_step.create_state(lambda: run.init().params, run.abstract.params)
  return lambda: jax.block_until_ready(compiled(params, batch["image"]))
