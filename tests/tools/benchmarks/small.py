"""A case that is compiled in seconds, and what only a process with little memory can tell."""

import dataclasses

import jax

from benchmarks import trial
from benchmarks.case import Case
from compiled import compilation
from vit_jax.experiments import step_program, timing


class Small(Case):
  """One block, ten classes."""

  def config(self, batch_size, compute_dtype="auto"):
    made = super().config(batch_size, compute_dtype)
    model = dataclasses.replace(made.model, depth=1, num_classes=10)
    return dataclasses.replace(made, model=model)


def compiled(case, batch):
  """The plan and the program of a batch, on one device."""
  made = step_program.planned(case.config(batch, "float32"), jax.devices()[:1])
  function, shapes = trial.program(case.what, made)
  return made, function.lower(*shapes).compile()


def alone(case, batch, memory):
  """For a process of its own: what is said of a batch, and of twice that when it is run."""
  made, twice = compiled(case, 2 * batch)
  said = trial.measured(case, batch, memory)  # from now on this process is limited
  try:
    timing.median_seconds(trial.stepper(case.what, made, twice))
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    return dict(said=said["fits"], twice=timing.lacks_memory(error))
  return dict(said=said["fits"], twice=False)


def estimated(topology, *trials):
  """`trial.estimated` of (case, batch), in a process of its own: two cannot share the compiler."""
  devices = compilation.devices_of(topology)
  return dict(found=[trial.estimated(*one, devices) for one in trials])
