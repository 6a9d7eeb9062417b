"""Figures of speed, with a clock that the test turns."""

import numpy as np

from vit_jax.monitor import Monitor


class Clock:
  now = 100.0

  def __call__(self):
    return self.now


def make(**changes):
  clock = Clock()
  arguments = dict(
    batch_size=32, total_steps=100, epoch_examples=320, flops_per_image=2e9, peak_flops=1e12
  )
  return Monitor(**arguments | changes, clock=clock), clock


def test_figures_of_a_window():
  monitor, clock = make()
  monitor.start(10)
  with monitor.waiting():
    clock.now += 2
  clock.now += 6
  with monitor.paused("evaluation"):
    clock.now += 1000
  figures = monitor.report(20)
  assert figures["step_seconds"] == 0.8
  assert figures["images_per_second"] == 40
  assert figures["data/input_wait"] == 0.25
  assert figures["eta_seconds"] == 80 * 0.8
  assert figures["data/epoch"] == 2
  np.testing.assert_allclose(figures["mfu"], 40 * 2e9 / 1e12)


def test_each_window_stands_for_itself():
  monitor, clock = make()
  monitor.start(0)
  clock.now += 50
  monitor.report(5)
  clock.now += 1
  assert monitor.report(10)["step_seconds"] == 0.2


def test_the_first_step_with_its_compilation_is_left_out_once():
  monitor, clock = make()
  monitor.start(0)
  clock.now += 500
  monitor.settled(1)
  clock.now += 9
  monitor.settled(2)
  assert monitor.report(10)["step_seconds"] == 1


def test_a_report_on_the_first_step_alone_tells_how_long_it_was_compiled():
  monitor, clock = make()
  monitor.start(0)
  clock.now += 40
  monitor.settled(1)
  figures = monitor.report(1)
  assert figures["step_seconds"] == figures["time/compile"] == 40
  assert figures["goodput"] == 0
  clock.now += 2
  assert monitor.report(2)["step_seconds"] == 2


def test_no_mfu_where_the_peak_is_unknown():
  monitor, clock = make(peak_flops=None)
  clock.now += 1
  assert "mfu" not in monitor.report(1)


def test_the_whole_time_is_accounted_for():
  monitor, clock = make()
  clock.now += 5
  monitor.start(0)
  with monitor.waiting():
    clock.now += 3
  clock.now += 40
  monitor.settled(1)
  with monitor.waiting():
    clock.now += 1
  clock.now += 20
  with monitor.paused("evaluation"):
    clock.now += 7
  with monitor.paused("checkpoint"):
    clock.now += 4
  figures = monitor.report(10)
  account = {"start-up": 5, "compile": 40, "input": 4, "evaluation": 7, "checkpoint": 4, "plots": 0}
  assert monitor.account() == {"steps": 20} | account
  assert figures["goodput"] == 20 / 80
  assert {key: figures[f"time/{key}"] for key in account} == account


def test_the_time_before_the_monitor_is_start_up():
  monitor, clock = make(began=88.0)
  clock.now += 3
  monitor.start(7)
  assert monitor.account()["start-up"] == 15
