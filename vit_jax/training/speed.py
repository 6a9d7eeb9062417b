"""How fast the run goes, and where its time goes."""

import contextlib
import time
from collections.abc import Callable

# What the loop does while no step is under way, in the order of first appearance; else it is idle.
CAUSES = ("start-up", "compile", "input", "evaluation", "checkpoint", "plots")


class Monitor:
  """Measures between two reports; evaluation and other breaks are left out of the figures.

  Beside the speed it keeps account of the whole time since the command began: steps get the time
  in which the devices work on them, and the rest goes to what the loop did then: one of `CAUSES`,
  or "idle". Input that is made while the devices work costs nothing. Where there are many hosts,
  it is as this one sees it: waiting for another in the middle of a step counts as work.
  """

  def __init__(
    self,
    *,
    batch_size: int,
    total_steps: int,
    epoch_examples: int,
    flops_per_image: float,
    peak_flops: float | None,
    busy: Callable[[float], float],
    began: float | None = None,
    clock=time.monotonic,
  ):
    """Makes a monitor.

    Args:
      batch_size: images a step, over all hosts.
      total_steps: the run's length.
      epoch_examples: training examples an epoch.
      flops_per_image: of one training step, forward and backward.
      peak_flops: FLOP/s of all devices together; None leaves MFU out.
      busy: tells how many seconds the devices have worked on steps up to a time by `clock`.
      began: when the command began, by `clock`; None: now.
      clock: seconds, monotonic.
    """
    self._batch_size = batch_size
    self._total_steps = total_steps
    self._epoch_examples = epoch_examples
    self._flops_per_image = flops_per_image
    self._peak_flops = peak_flops
    self._busy = busy
    self._clock = clock
    self._began = clock() if began is None else began
    self._spent = dict.fromkeys(CAUSES, 0.0)
    self._compiled = False
    self._open_window(0)

  def start(self, step: int):
    """All is ready for the first step of this command, the one after `step`."""
    self._spent["start-up"] = self._clock() - self._began
    self._open_window(step)

  def _open_window(self, step):
    self._step, self._since, self._waited, self._paused = step, self._clock(), 0.0, 0.0

  @contextlib.contextmanager
  def _without_work(self, cause):
    """What passes inside while the devices have no work goes to `cause`."""
    begin = self._clock()
    worked = self._busy(begin)
    yield
    end = self._clock()
    self._spent[cause] += max(end - begin - (self._busy(end) - worked), 0.0)

  @contextlib.contextmanager
  def waiting(self):
    """Time inside goes to waiting for input, as far as the devices have no work."""
    before = self._spent["input"]
    with self._without_work("input"):
      yield
    self._waited += self._spent["input"] - before

  @contextlib.contextmanager
  def dispatching(self):
    """Around the call of a compiled function: the first call compiles."""
    if self._compiled:
      yield
      return
    self._compiled = True
    with self.paused("compile"):
      yield

  @contextlib.contextmanager
  def paused(self, cause: str):
    """Time inside goes to `cause` and is not part of any figure of speed."""
    begin = self._clock()
    with self._without_work(cause):
      yield
    self._paused += self._clock() - begin

  def report(self, step: int) -> dict[str, float]:
    """The figures of the steps since the last report (or the start) up to `step`.

    Returns:
      step_seconds, images_per_second, eta_seconds, data/input_wait (share of the time in which the
      devices waited for input, 0 to 1), data/epoch, mfu (0 to 1) where the chip's peak is known;
      and since the command began: goodput (share of steps, 0 to 1), and time/CAUSE in seconds as
      `account` has them.
    """
    elapsed = max(self._clock() - self._since - self._paused, 1e-9)
    step_seconds = elapsed / max(step - self._step, 1)
    images_per_second = self._batch_size / step_seconds
    figures = dict(
      step_seconds=step_seconds,
      images_per_second=images_per_second,
      eta_seconds=step_seconds * (self._total_steps - step),
    )
    figures["data/input_wait"] = self._waited / elapsed
    figures["data/epoch"] = step * self._batch_size / self._epoch_examples
    if self._peak_flops:
      figures["mfu"] = images_per_second * self._flops_per_image / self._peak_flops
    self._open_window(step)
    spent = self.account()
    figures["goodput"] = spent["steps"] / max(sum(spent.values()), 1e-9)
    return figures | {f"time/{cause}": seconds for cause, seconds in spent.items()}

  def account(self) -> dict[str, float]:
    """Seconds since the command began: {"steps": ..., each of `CAUSES`: ..., "idle": ...}."""
    now = self._clock()
    steps = self._busy(now)
    idle = max(now - self._began - steps - sum(self._spent.values()), 0.0)
    return {"steps": steps} | self._spent | {"idle": idle}
