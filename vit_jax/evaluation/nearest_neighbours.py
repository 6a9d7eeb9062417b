"""Accuracy by the nearest training images: quick, and nothing is fitted.

Each of the k training images whose features have the greatest cosine similarity s votes for its
class with the weight exp(s / T). Source: Wu et al., "Unsupervised Feature Learning via
Non-Parametric Instance Discrimination", 2018, Section 3.4, which has T = 0.07; k = 20 as in Caron
et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

TRAIN_ROWS = 65_536  # of the training features on the device at a time
TEST_ROWS = 1024


def accuracy(
  train: tuple[np.ndarray, np.ndarray],
  test: tuple[np.ndarray, np.ndarray],
  *,
  num_classes: int,
  neighbours: int,
  temperature: float,
  stop=lambda: False,
  train_rows: int = TRAIN_ROWS,
  test_rows: int = TEST_ROWS,
) -> float | None:
  """The share of test images whose class gets the most votes; None where `stop()` came true.

  Args:
    train: features (N, D) and labels (N,).
    test: features (M, D) and labels (M,).
    num_classes: labels lie below.
    neighbours: k, at most N.
    temperature: T.
    stop: asked before each comparison.
    train_rows, test_rows: features compared at a time, which bounds the memory.
  """
  chunks = dict(train_rows=train_rows, test_rows=test_rows)
  found = nearest(unit(train[0]), unit(test[0]), neighbours, stop=stop, **chunks)
  if found is None:
    return None
  similarities, rows = found
  # Off the exponent goes what all votes of an image share, so that none overflows.
  weights = np.exp((similarities - similarities[:, :1]) / temperature)
  votes = np.zeros((len(rows), num_classes))
  np.add.at(votes, (np.arange(len(rows))[:, None], train[1][rows]), weights)
  return float(np.mean(votes.argmax(axis=1) == test[1]))


def unit(features: np.ndarray) -> np.ndarray:
  """Features (N, D) divided by their length."""
  return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def nearest(
  train: np.ndarray, test: np.ndarray, neighbours: int, *, stop, train_rows: int, test_rows: int
) -> tuple[np.ndarray, np.ndarray] | None:
  """Similarities (M, k), greatest first, of the nearest training features, and their rows (M, k).

  Of equal ones the first row comes first. Each process does all of it on one of its devices.
  """
  values = np.full((len(test), neighbours), -np.inf, np.float32)
  rows = np.zeros((len(test), neighbours), np.int64)
  for begin in range(0, len(train), train_rows):
    bank = jax.device_put(train[begin : begin + train_rows])
    for first in range(0, len(test), test_rows):
      if stop():
        return None
      part = slice(first, first + test_rows)
      found = best(bank, jax.device_put(test[part]), min(neighbours, len(bank)))
      more, places = jax.device_get(found)
      values[part], rows[part] = merge(values[part], rows[part], more, places + begin)
  return values, rows


@functools.partial(jax.jit, static_argnums=2)
def best(train: jax.Array, test: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
  """The greatest products of each test row with training rows, and which rows: both (M, count)."""
  return jax.lax.top_k(jnp.matmul(test, train.T, precision="highest"), count)


def merge(values, rows, more, other) -> tuple[np.ndarray, np.ndarray]:
  """The greatest of two lists for each test row, as many as the first holds."""
  values, rows = np.concatenate([values, more], axis=1), np.concatenate([rows, other], axis=1)
  order = np.argsort(-values, axis=1, kind="stable")[:, : rows.shape[1] - other.shape[1]]
  return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)
