"""A case that is compiled in seconds, and a trial in a process of its own."""

import dataclasses

from vit_jax.extras.benchmarks import trial
from vit_jax.extras.benchmarks.case import Case
from vit_jax.extras.compiled import platforms


class Small(Case):
  """One block, ten classes."""

  def config(self, batch_size, compute_dtype="auto"):
    made = super().config(batch_size, compute_dtype)
    model = dataclasses.replace(made.model, depth=1, num_classes=10)
    return dataclasses.replace(made, model=model)


def estimated(topology, *trials):
  """`trial.estimated` of (case, batch), in a process of its own: two cannot share the compiler.

  A refusal whose words are not known is an error here.
  """
  trial.lacks_memory = lambda error: False
  devices = platforms.devices_of(topology)
  return dict(found=[trial.estimated(*one, devices) for one in trials])
