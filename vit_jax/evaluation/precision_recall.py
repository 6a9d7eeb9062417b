"""Precision and recall of classes, from counts of predictions or from the ranks of scores.

A fraction without a denominator is 0, as with scikit-learn's zero_division=0.
"""

from collections.abc import Mapping

import jax
import numpy as np

MAX_SCORES = 2**28  # images times classes; their float32 scores take 1 GiB on each host


def of_classes(images: np.ndarray, predicted: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Precision, recall and F1 of each class, (3, K) float64.

  Args:
    images: (K,) number of images of each class.
    predicted: (K,) number of images with this prediction.
    right: (K,) number of images of the class with this prediction.
  """
  precision = right / np.maximum(predicted, 1)
  recall = right / np.maximum(images, 1)
  f1 = 2 * right / np.maximum(images + predicted, 1)
  return np.stack([precision, recall, f1])


def macro(images: np.ndarray, predicted: np.ndarray, right: np.ndarray) -> dict[str, float]:
  """The means of `of_classes`, over the classes that are a label or a prediction of an image."""
  known = images + predicted > 0
  means = of_classes(images, predicted, right)[:, known].mean(axis=1).tolist()
  return dict(zip(("macro_precision", "macro_recall", "macro_f1"), means, strict=True))


class Scores:
  """Collects the scores of a set with any number of labels per image, over batches."""

  def __init__(self, images: int, classes: int):
    """`images` and `classes` are those of the set; their product is at most `MAX_SCORES`."""
    self._scores = np.empty((classes, images), np.float32)
    self._labels = np.empty((classes, images), bool)
    self._count = 0

  def add(self, rows: Mapping[str, jax.Array]):
    """Keeps the rows of `classification.make_step` that count."""
    rows = jax.device_get({name: rows[name] for name in ("logits", "labels", "counts")})
    there = rows["counts"] > 0
    begin = self._count
    self._count += int(there.sum())
    self._scores[:, begin : self._count] = rows["logits"][there].T
    self._labels[:, begin : self._count] = rows["labels"][there].T

  def mean_average_precision(self) -> float:
    """The mean of `average_precision` over the classes that are a label of an image."""
    scores = self._scores[:, : self._count]
    labels = self._labels[:, : self._count]
    found = [average_precision(*each) for each in zip(scores, labels, strict=True) if each[1].any()]
    return float(np.mean(found))


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
  """The sum of precision times gained recall over descending thresholds, without interpolation.

  Equal scores pass a threshold together, so their order does not matter.

  Args:
    scores: (N,), finite.
    labels: (N,) whether the image has the class; at least one has it.

  Source: as scikit-learn's `average_precision_score`.
  """
  order = np.argsort(-scores)
  hits = np.cumsum(labels[order])
  last = np.append(np.flatnonzero(np.diff(scores[order])), len(order) - 1)  # of equal scores
  gained = np.diff(hits[last], prepend=0)
  return float(np.sum(gained * hits[last] / (last + 1)) / hits[-1])
