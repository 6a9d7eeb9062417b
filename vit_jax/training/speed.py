"""Measures the speed of a run, and accounts for its time."""

import contextlib
import queue
import threading
import time
from typing import TYPE_CHECKING

import jax

from vit_jax.devices.chips import CHIPS
from vit_jax.learning.objective import trains_all
from vit_jax.training.steps import ImageCount

if TYPE_CHECKING:
  from vit_jax.training.run import Run

# Causes of time without a step under way, in the order in which they first appear. A run that
# verifies steps has "verification" too, and one that is profiled "profile".
CAUSES = ("start-up", "compile", "input", "evaluation", "checkpoint", "plots")


class DeviceTimer:
  """Measures how long the devices have worked, without delaying the loop that feeds them.

  A context manager around the loop. A thread waits for each computation: the devices count as
  working while any dispatched computation is not done.
  """

  def __init__(self, clock=time.monotonic):
    self._clock = clock
    self._lock = threading.Lock()
    self._queue = queue.SimpleQueue()
    self._pending = 0  # computations that are not done
    self._since = 0.0  # when the devices last began to work
    self._before = 0.0  # seconds of work up to then
    self._thread = threading.Thread(target=self._follow, name="device-timer", daemon=True)

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *_):
    self._queue.put(None)
    self._thread.join()  # Python crashes at its exit if a thread is still inside JAX.

  def dispatched(self, outputs):
    """Notes a computation by its output arrays; call it right after dispatching."""
    with self._lock:
      if not self._pending:
        self._since = self._clock()
      self._pending += 1
    self._queue.put(outputs)

  def seconds(self, now: float) -> float:
    """Seconds that the devices have worked up to `now`, including unfinished work."""
    with self._lock:
      if self._pending:
        return self._before + (now - self._since)
      return self._before

  def _follow(self):
    while (outputs := self._queue.get()) is not None:
      with contextlib.suppress(Exception):  # The loop reads the same arrays, and raises it there.
        jax.block_until_ready(outputs)
      with self._lock:
        self._pending -= 1
        if not self._pending:
          self._before += self._clock() - self._since


class Monitor:
  """Measures the speed between two reports, without evaluations and other pauses.

  The monitor also accounts for the whole time since the command began. Time in which the devices
  work counts as "steps". The rest counts for whatever the loop did then: one of `CAUSES`, or
  "idle". Input that is prepared while the devices work costs nothing. With several hosts this is
  the view of one host: waiting for another host in the middle of a step counts as work.
  """

  def __init__(
    self,
    *,
    resume_point: ImageCount,
    total_steps: int,
    epoch_examples: int,
    flops_per_image: float,
    peak_flops: float | None,
    devices: DeviceTimer,
    began: float | None = None,
    clock=time.monotonic,
  ):
    """Makes a monitor.

    Args:
      resume_point: the steps and images before this start; counts images, over all hosts.
      total_steps: the run's length.
      epoch_examples: training examples an epoch.
      flops_per_image: FLOPs of one image in a training step, forward and backward.
      peak_flops: FLOP/s of all devices together; None leaves MFU out.
      devices: measures how long they have worked.
      began: when the command began, by `clock`; None: now.
      clock: seconds, monotonic.
    """
    self._resume_point = resume_point
    self._total_steps = total_steps
    self._epoch_examples = epoch_examples
    self._flops_per_image = flops_per_image
    self._peak_flops = peak_flops
    self._devices = devices
    self._clock = clock
    self._began = clock() if began is None else began
    self._spent = dict.fromkeys(CAUSES, 0.0)
    self._compiled = False
    self._open_window(0)

  @classmethod
  def of_run(cls, run: "Run", devices: DeviceTimer, began: float | None) -> "Monitor":
    """The monitor of a run; `devices` and `began` as above."""
    # With frozen parameters MFU would be wrong: its count of FLOPs includes all gradients.
    peak_flops = None
    if trains_all(run.objective, run.config.optimizer):
      known = CHIPS.get(jax.devices()[0].device_kind)
      peak_flops = known and known.peak_flops * run.mesh.size
    return cls(
      resume_point=run.resume_point,
      total_steps=run.steps.total,
      epoch_examples=len(run.data.train),
      flops_per_image=run.objective.training_flops(run.config.data.image_size),
      peak_flops=peak_flops,
      devices=devices,
      began=began,
    )

  def start(self, step: int):
    """Ends the start-up: the step after `step` is the first of this command.

    What was counted for other causes, such as an evaluation that was left to do, is no start-up.
    """
    self._spent["start-up"] = self._clock() - self._began - sum(self._spent.values())
    self._open_window(step)

  def _open_window(self, step):
    self._step = step
    self._since = self._clock()
    self._waited = 0.0
    self._paused = 0.0

  @contextlib.contextmanager
  def _without_work(self, cause):
    """Counts the time inside for `cause`, as long as the devices have no work."""
    begin = self._clock()
    worked = self._devices.seconds(begin)
    try:
      yield
    finally:  # an interrupted evaluation took its time too
      end = self._clock()
      self._spent.setdefault(cause, 0.0)
      self._spent[cause] += max(end - begin - (self._devices.seconds(end) - worked), 0.0)

  @contextlib.contextmanager
  def waiting(self):
    """Counts the time inside as waiting for input, as long as the devices have no work."""
    before = self._spent["input"]
    with self._without_work("input"):
      yield
    self._waited += self._spent["input"] - before

  @contextlib.contextmanager
  def dispatching(self):
    """Encloses the call of a compiled function; the first call compiles.

    A step that the first call waits for, as one that is verified, is part of the speed.
    """
    if self._compiled:
      yield
      return
    self._compiled = True
    with self._without_work("compile"):
      yield
    self._paused += self._spent["compile"]

  def dispatched(self, outputs):
    """Notes that the devices got work, by its output arrays; call it right after dispatching."""
    self._devices.dispatched(outputs)

  @contextlib.contextmanager
  def paused(self, cause: str):
    """Counts the time inside for `cause`, and leaves it out of the speed."""
    begin = self._clock()
    with self._without_work(cause):
      yield
    self._paused += self._clock() - begin

  def report(self, step: int) -> dict[str, float]:
    """The metrics of the steps since the last report (or the start) up to `step`.

    Returns:
      Since the last report: step_seconds, images_per_second, eta_seconds, data/input_wait (share of
      the time in which the devices waited for input, 0 to 1), and mfu (0 to 1) if the chip's peak
      is known. Since the run began: data/images and data/epoch, the training images and how often
      each was seen. Since the command began: goodput (share of the steps, 0 to 1), and
      time/CAUSE (seconds) for every entry of `account`.
    """
    elapsed = max(self._clock() - self._since - self._paused, 1e-9)
    step_seconds = elapsed / max(step - self._step, 1)
    images_per_second = self._resume_point.batch_size / step_seconds
    metrics = dict(
      step_seconds=step_seconds,
      images_per_second=images_per_second,
      eta_seconds=step_seconds * (self._total_steps - step),
    )
    metrics["data/input_wait"] = self._waited / elapsed
    metrics["data/images"] = self._resume_point.up_to(step)
    metrics["data/epoch"] = metrics["data/images"] / self._epoch_examples
    if self._peak_flops:
      metrics["mfu"] = images_per_second * self._flops_per_image / self._peak_flops
    self._open_window(step)
    spent = self.account()
    metrics["goodput"] = spent["steps"] / max(sum(spent.values()), 1e-9)
    return metrics | {f"time/{cause}": seconds for cause, seconds in spent.items()}

  def account(self) -> dict[str, float]:
    """Seconds since the command began: {"steps": ..., each of `CAUSES`: ..., "idle": ...}."""
    now = self._clock()
    steps = self._devices.seconds(now)
    idle = max(now - self._began - steps - sum(self._spent.values()), 0.0)
    return {"steps": steps} | self._spent | {"idle": idle}
