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


def test_warmup_is_linear_from_zero():
  np.testing.assert_allclose([rate()(s) for s in range(5)], [0, 0.5, 1, 1.5, 2])


def test_linear_decay_is_a_line_to_the_end_value():
  np.testing.assert_allclose([rate()(s) for s in range(4, 21)], np.linspace(2, 0.5, 17), rtol=1e-6)


def test_cosine_decay():
  t = np.linspace(0, 1, 17)
  expected = 0.5 + 1.5 * (1 + np.cos(np.pi * t)) / 2
  actual = [rate(decay="cosine")(s) for s in range(4, 21)]
  np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_constant_and_no_warmup():
  constant = rate(decay="constant", warmup_steps=0)
  np.testing.assert_allclose([constant(s) for s in (0, 10, 20)], 2)


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


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_the_end_value_holds_after_the_end(decay):
  np.testing.assert_allclose([rate(decay=decay)(s) for s in (20, 25, 1000)], 0.5, rtol=1e-6)


def test_a_run_that_is_all_warmup():
  all_warmup = rate(warmup_steps=20)
  np.testing.assert_allclose([all_warmup(s) for s in (0, 10, 19, 21)], [0, 1, 1.9, 0.5])
