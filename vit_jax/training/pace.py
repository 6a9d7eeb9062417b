"""How long a run will take on the devices at hand, from some of its first steps."""

import itertools
import time
from collections.abc import Callable

import jax

from vit_jax.learning import state as states
from vit_jax.process import agreement, memory
from vit_jax.training.run import Run

FEWEST = 30  # steps; a shorter run is over soon
SETTLING = 3  # steps that are not timed: the first compiles, and batches were made ahead of them
SECONDS, MOST = 3.0, 20  # of the steps that are timed: as long as that, at most so many
SCORED = 0.5  # of a training image's time, for an image that is scored: a forward pass is a third


def expected_seconds(run: Run) -> float | None:
  """Seconds from the first step to the end: the run's own steps, with its own images, are timed.

  Its steps are done on a state that is given up. The time of evaluations is reckoned; that of
  start-up, saving and pictures is not in it. The result is right within a factor of two for runs of
  more than a minute, if the machine does nothing else before and after.

  Returns:
    None for a run of few steps, or if the devices have too little memory.
  """
  left = run.steps.total - run.resume_point.step
  if left < FEWEST:
    return None
  try:
    a_step = step_seconds(run)
  except (jax.errors.JaxRuntimeError, MemoryError) as error:
    if not memory.lacks_memory(error):
      raise
    return None  # the run says so
  return a_step * (left + SCORED * scored_images(run) / run.config.batch_size)


def step_seconds(run: Run, clock: Callable[[], float] = time.monotonic) -> float:
  """Seconds of a step, the wait for its images included; all processes call it together."""
  state = states.create(run.init, run.abstract)
  with run.batches() as batches:
    for batch in itertools.islice(batches, SETTLING):
      state, metrics = run.update(state, batch)
    jax.block_until_ready(metrics)
    begin, steps = clock(), 0
    while agreement.broadcast_bool(not steps or (steps < MOST and clock() - begin < SECONDS)):
      before = metrics
      state, metrics = run.update(state, next(batches))
      jax.block_until_ready(before)  # as the loop, which reads the metrics of the step before
      steps += 1
    jax.block_until_ready(metrics)
    return (clock() - begin) / steps


def scored_images(run: Run) -> int:
  """The images of all evaluations that are left."""
  every, left = run.steps.evaluate, range(run.resume_point.step + 1, run.steps.total + 1)
  times = sum(step % every == 0 for step in left) if every else 0
  times += not (every and run.steps.total % every == 0)
  return times * sum(len(named.source) for named in run.data.evaluations.datasets)
