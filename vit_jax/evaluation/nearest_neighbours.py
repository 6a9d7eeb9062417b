"""Accuracy of k nearest neighbours on features: quick, and nothing is fitted.

The k training images whose features have the greatest cosine similarity s each vote for their
class with the weight exp(s / T). Source: Wu et al., "Unsupervised Feature Learning via
Non-Parametric Instance Discrimination", 2018, Section 3.4, with T = 0.07; k = 20 as in Caron et
al., "Emerging Properties in Self-Supervised Vision Transformers", 2021.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import config as cfg
from vit_jax.config import Config, ConfigError
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.data.sources import Source
from vit_jax.evaluation import features, pairs
from vit_jax.evaluation.spec import EvalContext, EvaluationSpec, Evaluator, Metric, Result

TRAIN_ROWS = 65_536  # rows of training features on the device at a time
TEST_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class NearestNeighbours(Evaluator):
  """Training images that vote on test images, as config.nearest.NAME (`settings`) says."""

  settings: cfg.Nearest
  train: Source
  test: Source

  def score(self, context: EvalContext, params) -> Result:
    """The accuracy, named "20nn" if 20 neighbours vote."""
    representation = self.settings.representation
    train, test = (
      features.of_source(context, params, part, representation) for part in (self.train, self.test)
    )
    found = accuracy(
      train,
      test,
      raise_if_stopped=context.raise_if_stopped,
      num_classes=len(self.test.class_names),
      neighbours=self.settings.neighbours,
      temperature=self.settings.temperature,
    )
    return Result({f"{self.settings.neighbours}nn": found})


def open_all(
  settings: Mapping[str, cfg.Nearest],
  opener: Opener,
  trained: Sequence[NamedDataset],
  classes: Sequence[str] | None,
) -> dict[str, NearestNeighbours]:
  """Opens both sets of each; arguments as in `EvaluationSpec.open`.

  Raises:
    ConfigError: there are fewer images than neighbours, or as `pairs.open_pair`.
    SourceError: data is missing.
  """
  result = {}
  for name, one in settings.items():
    key = f"config.nearest.{name}"
    train, test = pairs.open_pair(key, one, opener, trained)
    if len(train) < one.neighbours:
      raise ConfigError(
        f"{key}.neighbours={one.neighbours} is more than the {len(train)} training images of "
        f"{one.train.source}; the most is {len(train)}."
      )
    result[name] = NearestNeighbours(one, train, test)
  return result


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
  """The share of test images whose class gets the most votes.

  Args:
    train: features (N, D) and labels (N,).
    test: features (M, D) and labels (M,).
    num_classes: number of classes; labels are smaller.
    neighbours: k, at most N.
    temperature: T.
    raise_if_stopped: called before each comparison; it may raise to end the work.
    train_rows, test_rows: rows of features compared at a time; they bound the memory.
  """
  chunks = dict(train_rows=train_rows, test_rows=test_rows)
  similarities, rows = nearest(
    unit(train[0]), unit(test[0]), neighbours, raise_if_stopped=raise_if_stopped, **chunks
  )
  # Subtracting the largest exponent scales all votes of an image alike, and none overflows.
  weights = np.exp((similarities - similarities[:, :1]) / temperature)
  votes = np.zeros((len(rows), num_classes))
  np.add.at(votes, (np.arange(len(rows))[:, None], train[1][rows]), weights)
  return float(np.mean(votes.argmax(axis=1) == test[1]))


def unit(features: np.ndarray) -> np.ndarray:
  """Features (N, D) divided by their length."""
  return features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)


def nearest(
  train: np.ndarray,
  test: np.ndarray,
  neighbours: int,
  *,
  raise_if_stopped,
  train_rows: int,
  test_rows: int,
) -> tuple[np.ndarray, np.ndarray]:
  """Similarities (M, k) of the nearest training features, greatest first, and their rows (M, k).

  Among equal similarities the smaller row comes first. Each process computes everything on one of
  its own devices.
  """
  values = np.full((len(test), neighbours), -np.inf, np.float32)
  rows = np.zeros((len(test), neighbours), np.int64)
  for begin in range(0, len(train), train_rows):
    bank = jax.device_put(train[begin : begin + train_rows])
    for first in range(0, len(test), test_rows):
      raise_if_stopped()
      part = slice(first, first + test_rows)
      found = best(bank, jax.device_put(test[part]), min(neighbours, len(bank)))
      more, places = jax.device_get(found)
      values[part], rows[part] = merge(values[part], rows[part], more, places + begin)
  return values, rows


@functools.partial(jax.jit, static_argnums=2)
def best(train: jax.Array, test: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
  """The greatest products of each test row with training rows, and these rows: both (M, count)."""
  return jax.lax.top_k(jnp.matmul(test, train.T, precision="highest"), count)


def merge(values, rows, more, other) -> tuple[np.ndarray, np.ndarray]:
  """Merges two lists of candidates for each test row; keeps as many as the first list holds."""
  values, rows = np.concatenate([values, more], axis=1), np.concatenate([rows, other], axis=1)
  order = np.argsort(-values, axis=1, kind="stable")[:, : rows.shape[1] - other.shape[1]]
  return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)


def settings_of(config: Config) -> dict[str, cfg.Nearest]:
  """The pairs of config.nearest that have both sources."""
  return pairs.with_sources(config.nearest)


def in_words(metric: str, metrics: Mapping[str, float]) -> str:
  """The accuracy."""
  return f"{metric.removesuffix('nn')} nearest {metrics[metric]:.2%}"


SPEC = EvaluationSpec(
  group="config.nearest",
  settings=settings_of,
  open=open_all,
  metrics=(Metric(r"\d+nn", headline=True),),
  names=lambda settings, _: (f"{settings.neighbours}nn",),
  in_words=in_words,
)
