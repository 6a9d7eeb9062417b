"""Scores of classifiers and of features, in float64."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from scipy import optimize, special

from vit_jax.evaluation.results import BINS

T = TypeVar("T")
COLDEST = 0.01  # the temperatures that are tried are between this and its inverse
RANK_ROWS = 25_600  # images for RankMe, as in its paper
EPSILON = 1e-7


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
  """The fraction of rows of (N, K) whose largest element is that of the label."""
  return float(np.mean(scores.argmax(axis=1) == labels))


def negative_log_likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
  """The mean of -log p(label), in nats."""
  logs = special.log_softmax(np.float64(logits), axis=1)
  return float(-logs[np.arange(len(labels)), labels].mean())


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
  """The mean over images of sum_k (p_k - y_k)^2, from 0 to 2 (Brier, 1950)."""
  wrong = np.float64(probabilities).copy()
  wrong[np.arange(len(labels)), labels] -= 1
  return float(np.square(wrong).sum(axis=1).mean())


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
  """The expected calibration error, in bins as `classification.evaluate` has them."""
  top = probabilities.max(axis=1)
  hits = probabilities.argmax(axis=1) == labels
  bins = np.clip(np.ceil(top * BINS).astype(np.int64) - 1, 0, BINS - 1)
  gaps = np.bincount(bins, hits - top, minlength=BINS)
  return float(np.abs(gaps).sum() / len(labels))


def temperature(logits: np.ndarray, labels: np.ndarray) -> float | None:
  """The T, from 0.01 to 100, for which logits / T have the smallest negative log-likelihood.

  It changes no prediction. If all predictions are right, a smaller T is always better, and none is
  the best: None. Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, Section 4.2.
  """
  if accuracy(logits, labels) == 1:
    return None

  def loss(log_temperature):
    return negative_log_likelihood(logits / np.exp(log_temperature), labels)

  most = -np.log(COLDEST)
  found = optimize.minimize_scalar(loss, bounds=(-most, most), options={"xatol": 1e-6})
  return float(np.exp(found.x))


def best(found: Iterable[tuple[T, np.ndarray]], labels: np.ndarray) -> tuple[T, float | None]:
  """The classifier with the greatest accuracy on held-out images, and its `temperature`.

  Among equal accuracies the smaller negative log-likelihood wins. One that diverged comes last.

  Args:
    found: classifiers, each with its logits (N, K).
    labels: (N,).
  """

  def order(each):
    _, logits = each
    if not np.isfinite(logits).all():
      return (-1.0, 0.0)
    return (accuracy(logits, labels), -negative_log_likelihood(logits, labels))

  classifier, logits = max(found, key=order)
  return classifier, temperature(logits, labels)


def of_logits(logits: np.ndarray, labels: np.ndarray, heat: float | None) -> dict[str, float]:
  """The scores of logits (N, K), and those after a division by the temperature `heat`, if any."""
  logits = np.float64(logits)
  plain = special.softmax(logits, axis=1)
  result = {
    "accuracy": accuracy(logits, labels),
    "nll": negative_log_likelihood(logits, labels),
    "brier": brier(plain, labels),
    "ece": calibration_error(plain, labels),
  }
  if heat is None:
    return result
  scaled = special.softmax(logits / heat, axis=1)
  return result | {
    "temperature": heat,
    "nll_scaled": negative_log_likelihood(logits / heat, labels),
    "brier_scaled": brier(scaled, labels),
    "ece_scaled": calibration_error(scaled, labels),
  }


def rank_me(features: np.ndarray) -> float:
  """exp of the entropy of the singular values of features (N, D), which are scaled to sum 1.

  It is at most min(N, D). Of more than 25,600 images, as many are taken, evenly spaced. Source:
  Garrido et al., "RankMe: Assessing the downstream performance of pretrained self-supervised
  representations by their rank", 2023, equation 1.
  """
  if len(features) > RANK_ROWS:
    features = features[np.linspace(0, len(features) - 1, RANK_ROWS).astype(np.int64)]
  values = np.linalg.svd(np.float64(features), compute_uv=False)
  shares = values / max(values.sum(), EPSILON) + EPSILON
  return float(np.exp(-np.sum(shares * np.log(shares))))
