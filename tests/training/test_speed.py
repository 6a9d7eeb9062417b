"""Metrics of speed, with a clock that the test turns."""

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.training.speed import DeviceTimer, Monitor
from vit_jax.training.steps import ImageCount


class Clock:
  now = 100.0

  def __call__(self):
    return self.now


class Devices:
  """Tells how long the devices have worked; the test says when they begin and end."""

  def __init__(self, clock):
    self.clock, self.before, self.since = clock, 0.0, None

  def seconds(self, now):
    return self.before + (0.0 if self.since is None else now - self.since)

  def work(self, seconds):
    self.since = self.clock.now
    self.clock.now += seconds
    self.rest()

  def rest(self):
    self.before, self.since = self.seconds(self.clock.now), None


def make(clock=None, **changes):
  clock = clock or Clock()
  devices = Devices(clock)
  arguments = dict(
    resume_point=ImageCount(0, 0, 32),
    total_steps=100,
    epoch_examples=320,
    flops_per_image=2e9,
    peak_flops=1e12,
  )
  return Monitor(**arguments | changes, devices=devices, clock=clock), devices


def test_metrics_of_a_window():
  monitor, devices = make(began=88.0)
  devices.clock.now += 3
  monitor.start(10)
  assert monitor.account()["start-up"] == 15
  with monitor.waiting():
    devices.clock.now += 2
  devices.clock.now += 6
  with monitor.paused("evaluation"):
    devices.clock.now += 1000
  metrics = monitor.report(20)
  assert metrics["step_seconds"] == 0.8
  assert metrics["images_per_second"] == 40
  assert metrics["data/input_wait"] == 0.25
  assert metrics["eta_seconds"] == 80 * 0.8
  assert metrics["data/epoch"] == 2
  np.testing.assert_allclose(metrics["mfu"], 40 * 2e9 / 1e12)
  assert "mfu" not in make(peak_flops=None)[0].report(1)


@pytest.mark.parametrize("waits", [False, True])
def test_compiling_is_no_part_of_the_speed(waits):
  """The first call of the compiled function compiles; and each window stands for itself.

  A call may wait for its step, as one that verifies it.
  """
  monitor, devices = make()
  monitor.start(0)
  for seconds in (500, 5, 5):  # what the call takes, besides the step
    with monitor.dispatching():
      devices.clock.now += seconds
      if waits:
        devices.work(2)
    if not waits:
      devices.work(2)
  metrics = monitor.report(4)
  assert metrics["step_seconds"] == 4
  assert metrics["time/compile"] == 500
  assert metrics["time/steps"] == 6
  assert metrics["time/idle"] == 10
  devices.clock.now += 1
  assert monitor.report(9)["step_seconds"] == 0.2


def test_input_made_while_the_devices_work_is_not_waited_for():
  monitor, devices = make()
  monitor.start(0)
  devices.since = devices.clock.now
  with monitor.waiting():
    devices.clock.now += 8
  assert monitor.account()["input"] == 0
  with monitor.waiting():
    devices.clock.now += 1
    devices.rest()
    devices.clock.now += 1
  metrics = monitor.report(5)
  assert metrics["time/input"] == 1
  assert metrics["data/input_wait"] == 0.1
  assert metrics["time/steps"] == 9
  with monitor.waiting():
    devices.before += 1e-3  # a step that ended just after the clock was read
  assert (monitor.account()["input"], monitor.account()["idle"]) == (1, 0)


def test_the_whole_time_is_accounted_for():
  monitor, devices = make()
  devices.clock.now += 5
  monitor.start(0)
  for doing, seconds in (
    (monitor.waiting(), 3),
    (monitor.dispatching(), 40),
    (monitor.waiting(), 1),
    (monitor.paused("evaluation"), 7),
    (monitor.paused("checkpoint"), 4),
  ):
    with doing:
      devices.clock.now += seconds
  devices.work(20)
  devices.clock.now += 6
  metrics = monitor.report(10)
  account = {"start-up": 5, "compile": 40, "input": 4, "evaluation": 7, "checkpoint": 4, "plots": 0}
  account |= {"steps": 20, "idle": 6}
  assert monitor.account() == account
  assert metrics["goodput"] == 20 / 86
  assert {key: metrics[f"time/{key}"] for key in account} == account
  with monitor.paused("verification"):  # a cause of some runs only
    devices.clock.now += 2
  assert monitor.account() == account | {"verification": 2}


def test_what_is_done_before_the_first_step_is_no_part_of_its_speed():
  """As callbacks do at their start; an evaluation that was left to do has its own cause."""
  monitor, devices = make(began=90.0)
  with monitor.paused("evaluation"):
    devices.clock.now += 7
  devices.clock.now += 20
  monitor.start(0)
  devices.work(4)
  metrics = monitor.report(2)
  assert (metrics["step_seconds"], metrics["time/start-up"], metrics["time/idle"]) == (2, 30, 0)
  assert metrics["time/evaluation"] == 7


def test_an_interrupted_evaluation_counts_as_one():
  monitor, devices = make()
  monitor.start(0)

  def evaluate():
    with monitor.paused("evaluation"):
      devices.clock.now += 7
      raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    evaluate()
  assert (monitor.account()["evaluation"], monitor.account()["idle"]) == (7, 0)


# --- the time of the devices, with computations that end when the test says so ---


class Computation:
  """Stands for an array that is not ready yet, as jax.block_until_ready takes one."""

  def __init__(self, error=None):
    self.done, self.error = threading.Event(), error

  def block_until_ready(self):
    assert self.done.wait(60)
    if self.error:
      raise self.error
    return self


@pytest.fixture
def timer():
  with DeviceTimer(Clock()) as timer:
    yield timer


def after(timer, seconds):
  timer._clock.now += seconds
  return timer.seconds(timer._clock.now)


def finish(timer, computation):
  """Lets a computation end, and waits until the thread has seen it."""
  before = timer._pending
  computation.done.set()
  deadline = time.monotonic() + 60
  while timer._pending == before:
    assert time.monotonic() < deadline
    time.sleep(0.001)


def test_steps_given_ahead_count_once(timer):
  first, second = Computation(), Computation()
  timer.dispatched(first)
  assert after(timer, 2) == 2
  timer.dispatched(second)
  assert after(timer, 2) == 4
  finish(timer, first)
  assert after(timer, 5) == 9
  finish(timer, second)
  assert after(timer, 100) == 9


@pytest.mark.parametrize("error", [None, jax.errors.JaxRuntimeError("lost"), RuntimeError("gone")])
def test_a_gap_between_steps_does_not_count(timer, error):
  """A computation that failed is done too."""
  for seconds in (2, 3):
    step = Computation(error)
    after(timer, 50)
    timer.dispatched(step)
    after(timer, seconds)
    finish(timer, step)
  assert after(timer, 1) == 5


def test_leaving_waits_for_what_was_given():
  with DeviceTimer() as timer:
    for _ in range(3):
      timer.dispatched(jax.jit(lambda x: x @ x)(jnp.ones((500, 500))))
  assert not timer._thread.is_alive()
  end = timer.seconds(time.monotonic())
  assert end > 0
  assert timer.seconds(time.monotonic()) == end
