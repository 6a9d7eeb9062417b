"""The learning rate of every step against NumPy in float64."""

import jax
import numpy as np
import pytest

from vit_jax.learning import optim


def rate(**changes):
  arguments = dict(
    learning_rate=2.0, warmup_steps=4, total_steps=20, decay="linear", end_learning_rate=0.5
  )
  return optim.learning_rate_schedule(**arguments | changes)


@pytest.mark.parametrize("warmup", [0, 4])
@pytest.mark.parametrize(
  ("decay", "falls"),
  [
    ("linear", lambda t: 2 - 1.5 * t),
    ("cosine", lambda t: 0.5 + 1.5 * (1 + np.cos(np.pi * t)) / 2),
    ("constant", lambda t: 2),
  ],
)
def test_every_step_of_a_decay_and_beyond_its_end(decay, falls, warmup):
  steps = np.array([*range(21), 25, 1000])
  rises = steps * 0.5
  done = np.minimum(1, (steps - warmup) / (20 - warmup))
  expected = np.where(steps < warmup, rises, falls(done))
  rule = rate(decay=decay, warmup_steps=warmup)
  np.testing.assert_allclose([rule(step) for step in steps], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
  ("warmup", "drops", "end"),
  [
    (100, (200, 300, 400), 500),
    (500, (3000, 6000, 9000), 10_000),
    (500, (6000, 12_000, 18_000), 20_000),
  ],
)
def test_staircase_of_the_hyperrule(warmup, drops, end):
  steps = np.arange(end)
  passed = np.searchsorted(drops, steps, side="right")
  expected = np.where(steps < warmup, 0.003 * steps / warmup, 0.003 * 10.0**-passed)
  shares = tuple(drop / end for drop in drops)
  rule = rate(
    learning_rate=0.003, warmup_steps=warmup, total_steps=end, decay="steps", drops=shares
  )
  np.testing.assert_allclose(jax.vmap(rule)(steps), expected, rtol=1e-6)


def test_a_drop_is_at_the_nearest_step():
  rule = rate(warmup_steps=0, total_steps=100, decay="steps", drops=(0.29,))  # 28.999... steps
  np.testing.assert_allclose([rule(28), rule(29)], [2, 0.2], rtol=1e-6)


def test_a_run_that_is_all_warmup():
  all_warmup = rate(warmup_steps=20)
  np.testing.assert_allclose([all_warmup(s) for s in (0, 10, 19, 21)], [0, 1, 1.9, 0.5])
