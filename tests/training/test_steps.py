"""Durations in steps."""

import dataclasses

import pytest

from vit_jax import config as c
from vit_jax.training import steps

CONFIG = c.Config(batch_size=16, duration=c.Duration(epochs=2))


def test_durations():
  config = dataclasses.replace(
    CONFIG,
    log_every=c.Duration(examples=160),
    evaluate_every=c.Duration(epochs=0.5),
    checkpoint=c.Checkpoint(every=c.Duration(steps=9), keep_every=c.Duration(epochs=1)),
    schedule=c.Schedule(warmup=c.Duration(epochs=1)),
  )
  found = steps.of_run(config, 1437)
  assert found == steps.Steps(total=180, warmup=90, log=10, evaluate=45, save=9, keep=90)


@pytest.mark.parametrize(
  ("keep", "save", "expected"),
  [(0, 7, 0), (6, 4, 8), (5, 4, 4), (1, 4, 4), (50_000, 6, 49_998), (5, 0, 5)],
)
def test_checkpoints_are_kept_at_steps_that_are_saved(keep, save, expected):
  checkpoint = c.Checkpoint(every=c.Duration(steps=save), keep_every=c.Duration(steps=keep))
  found = steps.of_run(dataclasses.replace(CONFIG, checkpoint=checkpoint), 1437)
  assert found.keep == expected


def test_images_of_starts_with_several_batch_sizes():
  first = steps.ImageCount(0, 0, 64)
  assert (first.up_to(0), first.up_to(10)) == (0, 640)
  later = steps.ImageCount(10, first.up_to(10), 16)
  assert (later.up_to(10), later.up_to(15)) == (640, 720)
