"""Durations in steps."""

import dataclasses

import pytest

from tests import resolved
from vit_jax import config as c
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
  assert found == steps.Steps(total=180, warmup=90, log=10, evaluate=45, save=9, keep=90)


@pytest.mark.parametrize(
  ("keep", "save", "expected"),
  [(0, 7, 0), (6, 4, 8), (5, 4, 4), (1, 4, 4), (50_000, 6, 49_998), (5, 0, 5)],
)
def test_checkpoints_are_kept_at_steps_that_are_saved(keep, save, expected):
  checkpoint = c.Checkpoint(every=c.Duration(steps=save), keep_every=c.Duration(steps=keep))
  found = steps.durations_in_steps(dataclasses.replace(CONFIG, checkpoint=checkpoint), 1437)
  assert found.keep == expected


@pytest.mark.parametrize(
  ("step", "old", "new", "total", "warmup"),
  [
    (30, 100, 200, 65, 20),
    (50, 100, 200, 75, 30),  # of 9,000 images after the warm-up 4,000 are done, of 45 steps 20
    (20, 200, 100, 80, 1),
    (100, 100, 200, 100, 55),  # no image is left
    (5, 100, 200, 52, 8),  # in the warm-up
  ],
)
@pytest.mark.parametrize("unit", [dict(epochs=10), dict(examples=10_000)])
def test_a_run_takes_the_images_that_are_asked_whatever_batch_sizes_it_had(
  unit, step, old, new, total, warmup
):
  schedule = c.Schedule(warmup=c.Duration(epochs=1))
  config = resolved.config(batch_size=new, duration=c.Duration(**unit), schedule=schedule)
  later = steps.ImageCount(step, step * old, new)
  found = steps.durations_in_steps(config, 1000, later)
  assert (found.total, found.warmup) == (total, warmup)
  assert abs(later.up_to(total) - 10_000) <= new / 2 or total <= step
  again = steps.ImageCount(step + 7, later.up_to(step + 7), new)
  assert steps.durations_in_steps(config, 1000, again) == found  # a later start finds the same
  fixed = dataclasses.replace(config, duration=c.Duration(steps=90))
  assert steps.durations_in_steps(fixed, 1000, later).total == 90


@pytest.mark.parametrize("step", range(4))
def test_with_one_batch_size_a_run_that_goes_on_rounds_as_at_its_start(step):
  config = resolved.config(batch_size=2, duration=c.Duration(examples=5))  # 2.5 steps
  begun = steps.ImageCount(step, 2 * step, 2)
  assert steps.durations_in_steps(config, 9, begun) == steps.durations_in_steps(config, 9)
