"""The training loop: a fixed order of few calls; everything else is done by callbacks.

Metrics that vary by batch are logged as means over the steps since the last line.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import jax

from vit_jax.config import Config, ConfigError, RunError
from vit_jax.devices.watchdog import Watchdog
from vit_jax.learning.objective import PREFIX
from vit_jax.learning.train_step import TrainState
from vit_jax.process.console import StopRequest
from vit_jax.storage.base import UnreachableError
from vit_jax.storage.paths import Path
from vit_jax.training.speed import Monitor

if TYPE_CHECKING:  # a run holds data and models, which the loop only passes on
  from vit_jax.training.run import Run


@dataclasses.dataclass
class LoopState:
  """Where the loop is between two steps. A callback ends the run by setting `ending`.

  Attributes:
    step: number of steps that are done.
    state: the state after them.
    stopping: whether the run was asked to stop; the next start resumes it.
    ending: whether the run has reached its end.
  """

  step: int
  state: TrainState
  stopping: bool = False
  ending: bool = False

  @property
  def last(self) -> bool:
    """Whether no step follows in this command."""
    return self.stopping or self.ending


class Callback:
  """Hooks around the steps; a method that is not overridden does nothing.

  Every process calls the same methods at the same steps. `registry.CALLBACKS` lists the callbacks
  of extras.
  """

  def __init__(self, run, session):
    """`run` is the `Run`, and `session` the `callbacks.Session` of this command."""
    self._run = run
    self._session = session

  @classmethod
  def check(cls, config: Config, device: jax.Device):
    """Refuses settings that the devices do not support; `device` is one of them."""

  @classmethod
  def copies_of_state(cls, config: Config) -> int:
    """How many extra copies of the state it keeps on the devices."""
    return 0

  @classmethod
  def evaluated(cls, folder: Path):
    """Called after --mode=evaluate has written its results to a workdir; on the first process."""

  def update(self, update: Callable) -> Callable:
    """Wraps the function that computes a step, (state, batch) -> (state, metrics)."""
    return update

  def start(self, moment: LoopState):
    """Called before the first step of this command."""

  def before_step(self, step: int):
    """Called before the batch of `step` is taken."""

  def dispatched(self, step: int, metrics: dict[str, jax.Array]):
    """Called while the devices compute `step`; reading `metrics` would wait for them."""

  def wants(self, step: int) -> bool:
    """Whether to call `after_step` after `step`; after the last step it is always called."""
    return False

  def after_step(self, moment: LoopState):
    """Called after a step that any callback wants; the devices have no further work."""

  def end(self, moment: LoopState):
    """Called at the end of this command, even if it had no step to do."""


@contextlib.contextmanager
def under_way() -> Iterator[None]:
  """Turns a ConfigError inside into a RunError: the run has begun, so it is no wrong usage.

  A bucket refuses a run under way, such as with credentials that have expired.
  """
  try:
    yield
  except ConfigError as error:
    words = str(error)
    if isinstance(error, UnreachableError):
      words = f"{words}. Mend this, then start the same command again."
    raise RunError(words) from error


@dataclasses.dataclass(frozen=True)
class Loop:
  """The training loop of a run.

  The order of one step:
    1. take the batch, which is already on the devices, and dispatch the step;
    2. while the devices work, call `dispatched`, which reads the metrics of the previous step;
    3. ask every callback whether it wants the state, and agree with all hosts whether to stop;
    4. if any callback wants it, or at the end, call `after_step`. Of the core's callbacks, metrics
       come first, so that a state that is not finite is neither saved nor evaluated; then the
       checkpoint; then the evaluation, which may fail and must not cost the state.
  Before 1, `before_step` is called. At the end, `end` is called in reverse order.
  In 1 and 2 arrays move between host and devices only by explicit calls.

  Attributes:
    run: the run; its batches begin after the images so far.
    update: computes a step, (state, batch) -> (state, metrics).
    callbacks: in the order in which they are called.
    stop: tells whether the run was asked to stop.
    monitor: measures speed and time.
    watchdog: is told of progress.
  """

  run: "Run"
  update: Callable
  callbacks: Sequence[Callback]
  stop: StopRequest
  monitor: Monitor
  watchdog: Watchdog

  def train(self, state: TrainState) -> bool:
    """Trains from the state after `run.resume_point.step` steps to the end of the run.

    Returns:
      True at the end; False if the run was asked to stop before.

    Raises:
      RunError: the run cannot go on.
    """
    done = self.run.resume_point.step
    total = self.run.steps.total
    moment = LoopState(done, state, ending=done >= total)
    for callback in self.callbacks:
      callback.start(moment)
    self.monitor.start(done)
    return self._go_on(moment)

  @under_way()
  def _go_on(self, moment: LoopState) -> bool:
    """Trains to the end, as `train`, after the callbacks' start."""
    if not moment.last:
      with self.run.batches() as batches:
        while not moment.last:
          moment = self._step(moment.step + 1, moment.state, batches)
    for callback in reversed(self.callbacks):
      callback.end(moment)
    return not moment.stopping

  def _step(self, step, state, batches) -> LoopState:
    for callback in self.callbacks:
      callback.before_step(step)
    state = self._dispatch(step, state, batches)
    wanted = [callback.wants(step) for callback in self.callbacks]
    stopping = self.stop.agreed()
    moment = LoopState(step, state, stopping, ending=step == self.run.steps.total)
    if moment.last or any(wanted):
      for callback in self.callbacks:
        callback.after_step(moment)
    return moment

  def _dispatch(self, step, state, batches) -> TrainState:
    with jax.transfer_guard("disallow"):
      with self.monitor.waiting():
        batch = next(batches)
      # Beat after `next()`: a host blocked on input must look stalled.
      self.watchdog.beat(f"step {step}")
      with self.monitor.dispatching():
        state, metrics = self.update(state, batch)
      self.stop.hold()
      self.monitor.dispatched(metrics)
      for callback in self.callbacks:
        callback.dispatched(step, metrics)
    return state


BATCH = "batch/"  # prefix for the metrics of a single batch


def of_one_batch(name: str) -> bool:
  """Whether a metric of a step varies by batch, so that its mean says more."""
  return name == "loss" or name.startswith(PREFIX)


@dataclasses.dataclass
class MetricAccumulator:
  """The sums of the metrics of the steps since the last line.

  It is saved with each checkpoint, so that a resumed run writes the same lines.

  Attributes:
    sums: the sum of each metric, by name.
    counts: the steps in each sum; those where a metric is NaN, as nothing has it, are left out.
    skipped: the number of steps whose update was skipped; they are in no sum.
  """

  sums: dict[str, float] = dataclasses.field(default_factory=dict)
  counts: dict[str, int] = dataclasses.field(default_factory=dict)
  skipped: int = 0

  @classmethod
  def recorded(cls, meta: Mapping) -> "MetricAccumulator":
    """Reads the accumulator from the description of a checkpoint.

    Raises:
      ConfigError: the description is damaged.
    """
    match meta.get("since_line"):
      case {"sums": dict(sums), "counts": dict(counts), "skipped": int(skipped)} if _are_whole(
        sums, counts
      ):
        return cls(sums, counts, skipped)
      case {"steps": int(steps), "sums": dict(sums)}:  # of an earlier version
        return cls(sums, dict.fromkeys(sums, steps))
      case other:
        raise ConfigError(
          f"A checkpoint is damaged: since_line={other!r} is not sums, counts and skipped."
        )

  def add(self, metrics: Mapping[str, float]):
    """Adds the metrics of a step."""
    for name, value in metrics.items():
      if not math.isnan(value):
        self.sums[name] = self.sums.get(name, 0.0) + value
        self.counts[name] = self.counts.get(name, 0) + 1

  def take(self) -> dict[str, float]:
    """Returns the means and the number of skipped steps, and starts again from zero."""
    means = {name: value / self.counts[name] for name, value in self.sums.items()}
    line = means | {"skipped": self.skipped}
    self.sums, self.counts, self.skipped = {}, {}, 0
    return line


def _are_whole(sums: Mapping, counts: Mapping) -> bool:
  """Whether there is a sum and a count of steps for each metric."""
  kinds = {(type(sums[name]), type(counts.get(name))) for name in sums}
  return sums.keys() == counts.keys() and kinds <= {(float, int)}
