"""How long a run will take on these devices, from timing some of its first steps."""

import itertools
import time
from collections.abc import Callable

import jax

from vit_jax.learning import state as states
from vit_jax.process import agreement, memory
from vit_jax.training.run import Run

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
    if not memory.lacks_memory(error):
      raise
    return None  # the run itself reports it
  return a_step * (left + SCORED * scored_images(run) / run.config.batch_size)


def step_seconds(run: Run, clock: Callable[[], float] = time.monotonic) -> float:
  """Seconds per step, including the wait for its images; all processes call it together."""
  state = states.create(run.init, run.abstract)
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
