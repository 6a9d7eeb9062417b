"""Durations in steps."""

import dataclasses
import math

import pytest

from tests import resolved
from vit_jax import config as c
from vit_jax.config.resolve import resolve
from vit_jax.learning import optim
from vit_jax.training import steps

CONFIG = resolved.config(batch_size=16, duration=c.Duration(epochs=2))


def test_durations():
  config = dataclasses.replace(
    CONFIG,
    log_every=c.Duration(examples=160),
    evaluate_every=c.Duration(epochs=0.5),
    checkpoint=c.Checkpoint(every=c.Duration(steps=9), keep_every=c.Duration(epochs=1)),
    schedule=c.Schedule(warmup=c.Duration(epochs=1)),
  )
  found = steps.durations_in_steps(config, 1437)
  course = steps.Course(total=180, warmup=90)
  assert found == steps.Steps(total=180, course=course, log=10, evaluate=45, save=9, keep=90)


@pytest.mark.parametrize(
  "unit", [dict(steps=581), dict(steps=104), dict(steps=7), dict(epochs=10), dict(examples=9300)]
)
def test_a_tenth_of_the_run_comes_at_most_ten_times(unit):
  length = c.Duration(**unit)
  asked = dataclasses.replace(CONFIG, duration=length, evaluate_every=c.Config().evaluate_every)
  config = resolve(asked, {})
  for images in (930, 931, 1000, *range(1200, 1300)):
    found = steps.durations_in_steps(config, images)
    assert math.ceil(found.total / found.evaluate) <= 10, images
    assert found.evaluate in (round(found.total / 10), math.ceil(found.total / 10)), images


def test_an_epoch_of_a_little_more_than_two_steps_is_two_steps():
  sizes = dict(batch_size=512, duration=c.Duration(epochs=10), evaluate_every=c.Duration(epochs=1))
  found = steps.durations_in_steps(dataclasses.replace(CONFIG, **sizes), 1030)
  assert (found.total, found.evaluate) == (20, 2)


@pytest.mark.parametrize(
  ("keep", "save", "expected"),
  [(0, 7, 0), (6, 4, 8), (5, 4, 4), (1, 4, 4), (50_000, 6, 49_998), (5, 0, 5)],
)
def test_checkpoints_are_kept_at_steps_that_are_saved(keep, save, expected):
  checkpoint = c.Checkpoint(every=c.Duration(steps=save), keep_every=c.Duration(steps=keep))
  found = steps.durations_in_steps(dataclasses.replace(CONFIG, checkpoint=checkpoint), 1437)
  assert found.keep == expected


@pytest.mark.parametrize(
  ("step", "old", "new", "total"),
  [
    (30, 100, 200, 65),
    (50, 100, 200, 75),
    (20, 200, 100, 80),
    (100, 100, 200, 100),  # no image is left
    (5, 100, 200, 52),  # in the warm-up
  ],
)
@pytest.mark.parametrize("unit", [dict(epochs=10), dict(examples=10_000)])
def test_a_run_takes_the_images_that_are_asked_whatever_batch_sizes_it_had(
  unit, step, old, new, total
):
  config = resolved.config(batch_size=new, duration=c.Duration(**unit))
  later = steps.ImageCount(step, step * old, new, old)
  found = steps.durations_in_steps(config, 1000, later)
  assert found.total == total
  assert abs(later.up_to(total) - 10_000) <= new / 2 or total <= step
  again = steps.ImageCount(step + 7, later.up_to(step + 7), new, old)
  assert steps.durations_in_steps(config, 1000, again) == found  # a later start finds the same
  fixed = dataclasses.replace(config, duration=c.Duration(steps=90))
  assert steps.durations_in_steps(fixed, 1000, later).total == 90


DECAYS = ({"decay": "linear"}, {"decay": "cosine"}, {"decay": "steps", "drops": (0.2, 0.45, 0.7)})
WARMUPS = {}, dict(steps=20), dict(epochs=0.8), dict(examples=10)
SIZES = (64, 32), (64, 16, 128), (16, 128), (64, 32, 64)


def settings_of(size, duration, warmup, decay=DECAYS[0]):
  schedule = c.Schedule(learning_rate=1.0, warmup=c.Duration(**warmup), **decay)
  return resolved.config(batch_size=size, duration=c.Duration(**duration), schedule=schedule)


def values(config, course, step):
  """What changes during a run, in the step after `step` others."""
  rate = optim.learning_rate_schedule(
    learning_rate=1.0,
    warmup_steps=course.warmup,
    total_steps=course.total,
    decay=config.schedule.decay,
    end_learning_rate=0.0,
    drops=config.schedule.drops,
  )
  return float(rate(course.at(step))), course.at(step) / course.total


@pytest.mark.parametrize("decay", DECAYS, ids=lambda decay: decay["decay"])
@pytest.mark.parametrize(
  "warmup", [{}, dict(steps=20), dict(epochs=0.8), dict(examples=10)], ids=str
)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("first", [8, 40])  # in the warm-up, if it is long, and after it
def test_other_batch_sizes_leave_the_schedules_where_the_images_are(first, sizes, warmup, decay):
  images = 1600  # 250 steps of 64 images
  duration = dict(epochs=10)
  plain = settings_of(sizes[0], duration, warmup, decay)
  wanted = steps.durations_in_steps(plain, images).course
  count = steps.START.begun(sizes[0])
  for size in sizes:
    config = settings_of(size, duration, warmup, decay)
    count = count.begun(size)
    found = steps.durations_in_steps(config, images, count)
    for step in range(count.step, count.step + first + 1):
      expected = values(plain, wanted, count.up_to(step) / sizes[0])
      assert values(config, found.course, step) == pytest.approx(expected, abs=1e-6)
    count = count._replace(step=count.step + first, images=count.up_to(count.step + first))
  end = found.course.at(found.total)
  assert end == pytest.approx(found.course.total, abs=(1 + found.course.scale) / 2)


@pytest.mark.parametrize("warmup", [dict(steps=20), dict(epochs=0.8)])
def test_a_run_whose_length_is_in_steps_keeps_its_schedules(warmup):
  begun = steps.durations_in_steps(settings_of(64, dict(steps=100), warmup), 1600)
  count = steps.ImageCount(40, 40 * 64, first_batch=64)
  later = steps.durations_in_steps(settings_of(16, dict(steps=100), warmup), 1600, count)
  assert later.course == begun.course == steps.Course(total=100, warmup=20)


def test_without_another_batch_size_the_position_is_the_step():
  count = steps.START.begun(16)._replace(step=9, images=144)
  step = object()  # nothing is computed with it
  assert steps.durations_in_steps(CONFIG, 1437, count).course.at(step) is step


def test_the_images_of_a_run_are_recorded_with_its_batch_sizes():
  count = steps.ImageCount(20, 1280, 32, 64)
  found = steps.taken({"images": [*count]}, 25)
  assert found == steps.ImageCount(25, 1440, first_batch=64)
  assert steps.taken({"images": [20, 1280, 32]}, 25).first_batch == 32
  with pytest.raises(ValueError, match=r"images=\[20, 1280\] is not"):
    steps.taken({"images": [20, 1280]}, 25)


def test_a_warmup_that_was_derived_stays_with_another_batch_size():
  asked = c.Config(batch_size=64, duration=c.Duration(epochs=4), init_from="weights")
  facts = {"images": lambda config: 3200}
  begun = resolve(asked, facts)
  assert begun.schedule.warmup == c.Duration(steps=40)  # a fifth of 200
  later = resolve(dataclasses.replace(asked, batch_size=16), facts, begun)
  assert later.schedule.warmup == begun.schedule.warmup


@pytest.mark.parametrize("step", range(4))
def test_with_one_batch_size_a_run_that_goes_on_rounds_as_at_its_start(step):
  config = resolved.config(batch_size=2, duration=c.Duration(examples=5))  # 2.5 steps
  begun = steps.ImageCount(step, 2 * step, 2)
  assert steps.durations_in_steps(config, 9, begun) == steps.durations_in_steps(config, 9)
