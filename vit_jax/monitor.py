"""How fast the run goes, and where its time goes."""

import contextlib
import time

# What a run spends time on besides steps, in the order of their first appearance.
CAUSES = ("start-up", "compile", "input", "evaluation", "checkpoint", "plots")


class Monitor:
  """Measures between two reports; evaluation and other breaks are left out of the figures.

  Beside the speed it keeps account of the whole time since the command began: what is not spent
  on one of `CAUSES` is spent on steps, and its share is the goodput. Waiting for input counts in
  full, though the devices may still be at work on the step before.
  """

  def __init__(
    self,
    *,
    batch_size: int,
    total_steps: int,
    epoch_examples: int,
    flops_per_image: float,
    peak_flops: float | None,
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
      began: when the command began, by `clock`; None: now.
      clock: seconds, monotonic.
    """
    self._batch_size = batch_size
    self._total_steps = total_steps
    self._epoch_examples = epoch_examples
    self._flops_per_image = flops_per_image
    self._peak_flops = peak_flops
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

  def settled(self, step: int):
    """To be called once the metrics of `step` are known; the first is the end of compiling."""
    if not self._compiled:
      self._compiled = True
      self._spent["compile"] = self._clock() - self._since - self._waited - self._paused
      self._open_window(step)

  @contextlib.contextmanager
  def waiting(self):
    """Time inside counts as waiting for input."""
    begin = self._clock()
    yield
    self._waited += self._clock() - begin
    self._spent["input"] += self._clock() - begin

  @contextlib.contextmanager
  def paused(self, cause: str):
    """Time inside goes to `cause` and is not part of any figure of speed."""
    begin = self._clock()
    yield
    self._paused += self._clock() - begin
    self._spent[cause] += self._clock() - begin

  def report(self, step: int) -> dict[str, float]:
    """The figures of the steps since the last report (or the start) up to `step`.

    Returns:
      step_seconds, images_per_second, eta_seconds, data/input_wait (share of the time, 0 to 1),
      data/epoch, mfu (0 to 1) where the chip's peak is known; and since the command began:
      goodput (0 to 1), and time/CAUSE in seconds for each of `CAUSES` and for steps.
    """
    elapsed = max(self._clock() - self._since - self._paused, 1e-9)
    if step == self._step:  # the first step, which was compiled, is all that there is
      elapsed = max(self._spent["compile"], 1e-9)
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
    """Seconds since the command began: {"steps": ..., each of `CAUSES`: ...}."""
    total = self._clock() - self._began
    return {"steps": total - sum(self._spent.values())} | self._spent
