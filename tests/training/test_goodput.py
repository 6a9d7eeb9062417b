"""The account of the devices' time, with computations that end when the test says so."""

import threading
import time

import jax
import jax.numpy as jnp
import pytest

from vit_jax.training.speed import DeviceTimer


class Clock:
  now = 100.0

  def __call__(self):
    return self.now


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
def busy():
  with DeviceTimer(Clock()) as busy:
    yield busy


def after(busy, seconds):
  busy._clock.now += seconds
  return busy.seconds(busy._clock.now)


def finish(busy, computation):
  """Lets a computation end, and waits until the thread has seen it."""
  before = busy._pending
  computation.done.set()
  deadline = time.monotonic() + 60
  while busy._pending == before:
    assert time.monotonic() < deadline
    time.sleep(0.001)


def test_devices_without_work_are_not_busy(busy):
  assert after(busy, 10) == 0


def test_work_under_way_counts(busy):
  step = Computation()
  busy.dispatched(step)
  assert after(busy, 3) == 3
  assert after(busy, 1) == 4
  finish(busy, step)
  assert after(busy, 7) == 4


def test_steps_given_ahead_count_once(busy):
  first, second = Computation(), Computation()
  busy.dispatched(first)
  assert after(busy, 2) == 2
  busy.dispatched(second)
  assert after(busy, 2) == 4
  finish(busy, first)
  assert after(busy, 5) == 9
  finish(busy, second)
  assert after(busy, 100) == 9


def test_a_gap_between_steps_does_not_count(busy):
  for seconds in (2, 3):
    step = Computation()
    after(busy, 50)
    busy.dispatched(step)
    after(busy, seconds)
    finish(busy, step)
  assert after(busy, 1) == 5


@pytest.mark.parametrize("error", [jax.errors.JaxRuntimeError("lost"), RuntimeError("deleted")])
def test_a_failed_computation_is_done_too(busy, error):
  failed, next_ = Computation(error), Computation()
  busy.dispatched(failed)
  after(busy, 1)
  finish(busy, failed)
  after(busy, 10)
  busy.dispatched(next_)
  assert after(busy, 2) == 3
  finish(busy, next_)


def test_leaving_waits_for_what_was_given():
  with DeviceTimer() as busy:
    for _ in range(3):
      busy.dispatched(jax.jit(lambda x: x @ x)(jnp.ones((500, 500))))
  assert not busy._thread.is_alive()
  end = busy.seconds(time.monotonic())
  assert end > 0
  assert busy.seconds(time.monotonic()) == end
