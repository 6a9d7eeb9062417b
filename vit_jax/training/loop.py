"""The training loop: a fixed order of few calls."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import jax

from vit_jax.devices.watchdog import Watchdog
from vit_jax.learning.state import TrainState
from vit_jax.process.signals import StopRequest
from vit_jax.training import messages
from vit_jax.training.evaluator import Evaluator
from vit_jax.training.goodput import Busy
from vit_jax.training.profiler import Profiler
from vit_jax.training.recorder import Recorder
from vit_jax.training.saver import Saver
from vit_jax.training.speed import Monitor
from vit_jax.training.steps import Steps, due

Batches = Callable[[], contextlib.AbstractContextManager[Iterator[dict]]]


@dataclasses.dataclass(frozen=True)
class Loop:
  """The training loop, with all that it calls.

  The order of one step:
    1. take the batch, which is already on the devices, and dispatch the step;
    2. while the devices work, read the metrics of the step before: log them, stop on trouble;
    3. agree with all hosts whether to stop;
    4. when due: read the metrics of this step, evaluate, then save. A state is also saved if its
       evaluation is the best so far. A save that failed is tried again.
  In 1 and 2 arrays move between host and devices only by explicit calls.

  Attributes:
    steps: tells when to log, evaluate and save.
    update: (state, batch) -> (state, metrics), compiled; the old state is donated.
    stop: tells whether the run was asked to stop.
    watchdog: is told of progress.
    monitor: measures speed and time.
    busy: knows when the devices have work.
    recorder, evaluator, saver, profiler: log metrics, evaluate, save checkpoints, write traces.
  """

  steps: Steps
  update: Callable
  stop: StopRequest
  watchdog: Watchdog
  monitor: Monitor
  busy: Busy
  recorder: Recorder
  evaluator: Evaluator
  saver: Saver
  profiler: Profiler

  def run(self, state: TrainState, start: int, batches: Batches, *, evaluated: bool) -> bool:
    """Runs all steps after `start`.

    Args:
      state: the state after `start` steps.
      start: number of steps that are done.
      batches: opens the training batches of the steps after `start`, on the devices.
      evaluated: whether the evaluation after `start` has been made.

    Returns:
      True at the end; False if a signal stopped the run, its state saved.
    """
    self.monitor.start(start)
    if start and not evaluated and not self.evaluator.after(start, state):
      return False
    if self.evaluator.watch.enough:
      return True
    with batches() as ready:
      return self._steps(state, start, ready)

  def _steps(self, state, start, batches) -> bool:
    steps, before = self.steps, None
    for step in range(start + 1, steps.total + 1):
      self.profiler.before(step - start)
      state, metrics = self._dispatch(step, state, batches, before)
      before = step, metrics
      saving = self.saver.due(step)
      stopping, ending = self.stop.agreed(step), step == steps.total
      if stopping or ending or due(step, steps.evaluate) or saving:
        self.recorder.settle(before)
        before = None
        stopping = stopping or not self.evaluator.after(step, state)
        ending = ending or self.evaluator.watch.enough
        self._save(step, state, saving, stopping=stopping, ending=ending)
      if stopping or ending:
        self.profiler.end(step - start)
        return not stopping
    return True

  def _dispatch(self, step, state, batches, before):
    with jax.transfer_guard("disallow"):
      with self.monitor.waiting():
        batch = next(batches)
      # Not before the batch is there: a host that waits for its batch must count as behind.
      self.watchdog.beat(f"step {step}")
      with self.monitor.dispatching():
        result = self.update(state, batch)
      self.stop.hold()
      self.busy.dispatched(result[1])
      self.recorder.settle(before)
    return result

  def _save(self, step, state, saving, *, stopping, ending):
    best, last = self.evaluator.watch.best.step, stopping or ending
    if stopping:
      self.recorder.writer.say(messages.stopping(step))
    if last or saving or step == best:
      self.saver.save(state, best=best, last=last)
