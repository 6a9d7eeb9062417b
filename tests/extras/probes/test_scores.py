"""Scores against NumPy in float64 and scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from tests.extras.probes import made
from vit_jax.extras.probes import scores
from vit_jax.extras.probes.probe import Outcome


def example(images=400, classes=7, sharpness=3.0):
  rng = np.random.default_rng(0)
  labels = rng.integers(0, classes, images)
  logits = rng.standard_normal((images, classes))
  logits[np.arange(images), labels] += 1.0
  return sharpness * logits, labels


def softmax(logits):
  powers = np.exp(np.float64(logits) - logits.max(axis=1, keepdims=True))
  return powers / powers.sum(axis=1, keepdims=True)


def test_likelihood_brier_and_accuracy():
  logits, labels = example()
  p = softmax(logits)
  truth = np.eye(7)[labels]
  got = scores.of_logits(logits, labels, 2.0)
  assert got["nll"] == pytest.approx(metrics.log_loss(labels, p), abs=1e-12)
  assert got["brier"] == pytest.approx(((p - truth) ** 2).sum(axis=1).mean(), abs=1e-12)
  assert got["accuracy"] == metrics.accuracy_score(labels, logits.argmax(axis=1))
  assert got["nll_scaled"] == pytest.approx(metrics.log_loss(labels, softmax(logits / 2)), abs=1e-9)


def test_calibration_error_by_a_loop_over_bins():
  logits, labels = example()
  p = softmax(logits)
  top = p.max(axis=1)
  right = p.argmax(axis=1) == labels
  total = 0.0
  for k in range(15):
    inside = (top > k / 15) & (top <= (k + 1) / 15)
    if inside.any():
      total += inside.mean() * abs(right[inside].mean() - top[inside].mean())
  assert total > 0.05
  assert scores.calibration_error(p, labels) == pytest.approx(total, abs=1e-12)


def test_the_temperature_has_the_smallest_loss_of_a_fine_grid():
  logits, labels = example()
  found = scores.temperature(logits, labels)
  grid = np.linspace(2, 5, 601)
  true = np.arange(len(labels)), labels
  losses = [-np.log(softmax(logits / t)[true]).mean() for t in grid]
  assert found == pytest.approx(grid[np.argmin(losses)], abs=0.006)
  assert found > 2.0  # the logits were too sharp
  scaled = scores.of_logits(logits, labels, found)
  assert scaled["nll_scaled"] < scaled["nll"]
  assert scaled["ece_scaled"] < scaled["ece"]


def test_the_best_has_the_greatest_accuracy_then_the_smallest_loss_and_none_that_diverged():
  labels = np.array([0, 0, 0, 1])
  right, sure = np.array([[2.0, 0], [2, 0], [0, 1], [0, 2]]), np.array([[3.0, 0]] * 4)
  diverged = np.full((4, 2), np.nan)  # whose largest elements seem to be the first: 3 of 4 right
  unsure = right / 100
  found = [("diverged", diverged), ("unsure", unsure), ("right", right), ("sure", sure)]
  assert scores.best(found, labels) == ("right", scores.temperature(right, labels))
  assert scores.best(found[:2], labels)[0] == "unsure"


def test_rank_me():
  features = made.features(60, 4, width=9)[0]["pre_logits"].astype(np.float64)
  values = np.sqrt(np.linalg.eigvalsh(features.T @ features))
  p = values / values.sum()
  assert scores.rank_me(features) == pytest.approx(np.exp(-(p * np.log(p)).sum()), rel=1e-4)
  assert scores.rank_me(np.eye(8)) == pytest.approx(8, rel=1e-4)
  assert scores.rank_me(np.outer(np.arange(1, 9), np.arange(1, 5))) == pytest.approx(1, rel=1e-4)


def test_no_temperature_if_all_predictions_are_right():
  assert scores.temperature(np.eye(5), np.arange(5)) is None
  found = scores.of_logits(np.eye(5), np.arange(5), None)
  assert list(found) == ["accuracy", "nll", "brier", "ece"]


def test_a_mean_is_of_all_seeds_or_of_none():
  seeds = [{"nll": 0.5, "nll_scaled": 0.4}, {"nll": 0.1}]  # the second has no temperature
  one = Outcome("logistic", seeds, ["", ""])
  assert one.names() == ["nll"]
  assert (one.mean("nll"), one.deviation("nll")) == (pytest.approx(0.3), pytest.approx(0.2))
  assert (one.mean("nll_scaled"), one.deviation("nll_scaled")) == (None, None)
