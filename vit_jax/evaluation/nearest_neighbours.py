"""Accuracy of k nearest neighbours on features; it is quick, and fits nothing.

The k training images whose features have the greatest cosine similarity s each vote for their
class with the weight exp(s / T). Source: Wu et al., "Unsupervised Feature Learning via
Non-Parametric Instance Discrimination", 2018, Section 3.4, with T = 0.07; k = 20 as in Caron et
al., "Emerging Properties in Self-Supervised Vision Transformers", 2021.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
from etils import epy

from vit_jax.config import Config, ConfigError
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.evaluation import features
from vit_jax.evaluation.features import FeatureSpec
from vit_jax.evaluation.spec import EvalContext, Evaluator, Metric, Result, RunData

with epy.lazy_imports():
  import jax
  import jax.numpy as jnp

  from vit_jax.data import sources

TRAIN_ROWS = 65_536  # rows of training features on the device at a time
TEST_ROWS = 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nearest(FeatureSpec):
  """Classification by the nearest training images; left out if both its sources are empty."""

  metrics: ClassVar = (Metric(r"\d+nn", headline=True),)

  kind: str = name_of_kind(
    "nearest_neighbours", "accuracy of a vote of the nearest training images"
  )
  neighbours: int = setting(20, "training images that vote", low=1, high=10**6)
  temperature: float = setting(
    0.07, "a vote weighs exp(cosine similarity / temperature)", low=0.001, high=1000.0
  )

  def names(self, config: Config) -> list[str]:
    """The accuracy, named "20nn" if 20 neighbours vote."""
    return [f"{self.neighbours}nn"]

  def open(self, key: str, data: RunData) -> "NearestNeighbours":
    """Opens both sets; refuses more neighbours than training images."""
    train, test = self.open_both(key, data)
    if len(train) < self.neighbours:
      raise ConfigError(
        f"{key}.neighbours={self.neighbours} is more than the {len(train)} training images of "
        f"{self.train.source}; the most is {len(train)}."
      )
    return NearestNeighbours(self, train, test)

  @staticmethod
  def in_words(metric: str, metrics: Mapping[str, float]) -> str:
    """The accuracy."""
    return f"{metric.removesuffix('nn')} nearest {metrics[metric]:.2%}"


@dataclasses.dataclass(frozen=True)
class NearestNeighbours(Evaluator):
  """Training images that vote on test images, as config.evaluate.NAME (`settings`) says."""

  settings: Nearest
  train: "sources.Source"
  test: "sources.Source"

  def score(self, context: EvalContext, params) -> Result:
    """The accuracy, named "20nn" if 20 neighbours vote."""
    representation = self.settings.representation
    train = features.of_source(context, params, self.train, representation, "train")
    test = features.of_source(context, params, self.test, representation, "test")
    context.progress.doing(f"{context.name}: comparing features")
    share = accuracy(
      train,
      test,
      raise_if_stopped=context.raise_if_stopped,
      num_classes=len(self.test.class_names),
      neighbours=self.settings.neighbours,
      temperature=self.settings.temperature,
    )
    return Result({f"{self.settings.neighbours}nn": share})


def accuracy(
  train: tuple[np.ndarray, np.ndarray],
  test: tuple[np.ndarray, np.ndarray],
  *,
  num_classes: int,
  neighbours: int,
  temperature: float,
  raise_if_stopped: Callable[[], None] = lambda: None,
  train_rows: int = TRAIN_ROWS,
  test_rows: int = TEST_ROWS,
) -> float:
  """The fraction of test images whose class gets the most votes.

  Args:
    train: features (N, D) and labels (N,).
    test: features (M, D) and labels (M,).
    num_classes: number of classes; labels are smaller.
    neighbours: k, at most N.
    temperature: T.
    raise_if_stopped: called before each comparison; it may raise to end the work.
    train_rows, test_rows: rows of features compared at a time; they bound the memory.
  """
  similarities, rows = nearest(
    features.unit(train[0]),
    features.unit(test[0]),
    neighbours,
    raise_if_stopped=raise_if_stopped,
    train_rows=train_rows,
    test_rows=test_rows,
  )
  found = votes(similarities, train[1][rows], num_classes=num_classes, temperature=temperature)
  return float(np.mean(found.argmax(axis=1) == test[1]))


def votes(
  similarities: np.ndarray, labels: np.ndarray, *, num_classes: int, temperature: float
) -> np.ndarray:
  """The votes for each class, up to a factor for each image: (M, K).

  Args:
    similarities: (M, k) of the nearest training images, greatest first.
    labels: (M, k), their classes.
    num_classes, temperature: as for `accuracy`.
  """
  # Subtracting the largest exponent avoids overflow, and scales all votes of an image alike.
  weights = np.exp((similarities - similarities[:, :1]) / temperature)
  result = np.zeros((len(labels), num_classes))
  np.add.at(result, (np.arange(len(labels))[:, None], labels), weights)
  return result


def nearest(
  train: np.ndarray,
  test: np.ndarray,
  neighbours: int,
  *,
  raise_if_stopped: Callable[[], None] = lambda: None,
  train_rows: int = TRAIN_ROWS,
  test_rows: int = TEST_ROWS,
) -> tuple[np.ndarray, np.ndarray]:
  """Similarities (M, k) of the nearest training features, greatest first, and their rows (M, k).

  Among equal similarities the smaller row comes first. Each process computes everything on one of
  its own devices.
  """
  compare = jax.jit(best, static_argnums=2)
  values = np.full((len(test), neighbours), -np.inf, np.float32)
  rows = np.zeros((len(test), neighbours), np.int64)
  for begin in range(0, len(train), train_rows):
    bank = jax.device_put(train[begin : begin + train_rows])
    for first in range(0, len(test), test_rows):
      raise_if_stopped()
      chunk = slice(first, first + test_rows)
      found = compare(bank, jax.device_put(test[chunk]), min(neighbours, len(bank)))
      more, places = jax.device_get(found)
      values[chunk], rows[chunk] = merge(values[chunk], rows[chunk], more, places + begin)
  return values, rows


def best(train: "jax.Array", test: "jax.Array", count: int) -> tuple["jax.Array", "jax.Array"]:
  """The greatest products of each test row with training rows, and these rows: both (M, count)."""
  return jax.lax.top_k(jnp.matmul(test, train.T, precision="highest"), count)


def merge(values, rows, more, other) -> tuple[np.ndarray, np.ndarray]:
  """Merges two lists of candidates for each test row; keeps as many as the first list holds."""
  kept = rows.shape[1]
  values = np.concatenate([values, more], axis=1)
  rows = np.concatenate([rows, other], axis=1)
  order = np.argsort(-values, axis=1, kind="stable")[:, :kept]
  return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)
