"""How fast the run goes: step time, images/s, share of time that waits for input, MFU, ETA."""

import contextlib
import time


class Monitor:
  """Measures between two reports; evaluation and other breaks are left out of the figures."""

  def __init__(
    self,
    *,
    batch_size: int,
    total_steps: int,
    epoch_examples: int,
    flops_per_image: float,
    peak_flops: float | None,
    clock=time.monotonic,
  ):
    """Makes a monitor.

    Args:
      batch_size: images a step, over all hosts.
      total_steps: the run's length.
      epoch_examples: training examples an epoch.
      flops_per_image: of one training step, forward and backward.
      peak_flops: FLOP/s of all devices together; None leaves MFU out.
      clock: seconds, monotonic.
    """
    self._batch_size = batch_size
    self._total_steps = total_steps
    self._epoch_examples = epoch_examples
    self._flops_per_image = flops_per_image
    self._peak_flops = peak_flops
    self._clock = clock
    self._compiled = False
    self.restart(0)

  def restart(self, step: int):
    """Begins a new window after `step`; the one before is forgotten."""
    self._step, self._since, self._waited, self._paused = step, self._clock(), 0.0, 0.0

  def settled(self, step: int):
    """To be called once the metrics of `step` are known; leaves out the first compilation."""
    if not self._compiled:
      self._compiled = True
      self.restart(step)

  @contextlib.contextmanager
  def waiting(self):
    """Time inside counts as waiting for input."""
    begin = self._clock()
    yield
    self._waited += self._clock() - begin

  @contextlib.contextmanager
  def paused(self):
    """Time inside is not part of any figure."""
    begin = self._clock()
    yield
    self._paused += self._clock() - begin

  def report(self, step: int) -> dict[str, float]:
    """The figures of the steps since the last report (or restart) up to `step`.

    Returns:
      step_seconds, images_per_second, eta_seconds, data/input_wait (share of the time, 0 to 1),
      data/epoch, and mfu (0 to 1) where the chip's peak is known.
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
    self.restart(step)
    return figures
