"""Few-shot accuracy: a linear probe on frozen features, in closed form (Section 4.1).

X (N, D + 1) are the features of the k training images of each class, whitened with their own mean
and (standard deviation + 1e-5), and a constant 100; Y (N, K) is 1 for the image's class and -1 for
the others. W = argmin |X W - Y|^2 + lambda |W|^2 with lambda = 2^10. Constants and whitening are
those of big_vision's evaluators/fewshot_lsr.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from etils import epy

from vit_jax.config import Config, ConfigError, Data, as_size, sides
from vit_jax.config.fields import name_of_kind, setting
from vit_jax.evaluation import features
from vit_jax.evaluation.features import FeatureSpec
from vit_jax.evaluation.spec import (
  EvalContext,
  Evaluator,
  Metric,
  Result,
  RunData,
  add,
  one_behind,
)
from vit_jax.process.errors import check_finite
from vit_jax.process.text import shown

with epy.lazy_imports():
  import jax
  import jax.numpy as jnp

  from vit_jax.data import by_label, crops, sources
  from vit_jax.devices import mesh as meshes

CONSTANT = 100.0
RIDGE = 2.0**10
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class FewShot(FeatureSpec):
  """A linear probe with few training images per class; left out if both its sources are empty."""

  metrics: ClassVar = (Metric(r"\d+shot", headline=True),)
  resizes_itself: ClassVar = True

  kind: str = name_of_kind(
    "few_shot", "accuracy of a linear probe with few training images per class"
  )
  shots: tuple = setting((1, 5, 10, 25), "training images of each class")
  seeds: int = setting(
    3, "draws of the training images, with the seeds 0, 1, ...", low=1, high=1000
  )
  resize: float = setting(
    256 / 224,
    "images are resized to this multiple of image_size, whatever their proportions, before the "
    "centre is cropped (default: 256 for 224 pixels, as published); 1: not cropped",
    low=1.0,
    high=10.0,
  )

  def names(self, config: Config) -> list[str]:
    """The mean for each number of shots."""
    return [f"{k}shot" for k in self.shots]

  def resizing(self, data: Data) -> dict:
    """`resize` and `squeeze` of `Reader.evaluation`."""
    return dict(
      resize=as_size([round(self.resize * side) for side in sides(data.image_size)]), squeeze=True
    )

  def open(self, key: str, data: RunData) -> "FewShotProbe":
    """Draws the training images; refuses a class that has fewer than the shots."""
    most = most_shots(self.shots, key)
    train, test = self.open_both(key, data)
    data.opener.progress.doing(f"reading labels of {key}.train")
    try:
      draws = by_label.first_of_each_class(
        train, count=most, seeds=range(self.seeds), threads=data.opener.threads
      )
    except sources.SourceError as error:
      raise sources.SourceError(f"{key}.train ({self.train.source}): {error}.") from error
    rows, places = np.unique(draws, return_inverse=True)
    drawn = sources.Selected(train, sources.Listed(rows), f"{train.identity}, {key}")
    return FewShotProbe(self, drawn, places.reshape(draws.shape), test)

  @staticmethod
  def in_words(metric: str, metrics: Mapping[str, float]) -> str:
    """The mean over the draws, and their standard deviation, which one draw does not have."""
    words = f"{metric.removesuffix('shot')}-shot {metrics[metric]:.2%}"
    deviation = metrics.get(f"{metric}_std")
    if deviation is None:
      return words
    return f"{words} +- {deviation:.2%}"


@dataclasses.dataclass(frozen=True)
class FewShotProbe(Evaluator):
  """The images that linear probes are fitted to and scored on.

  Attributes:
    settings: config.evaluate.NAME.
    train: the training images of all draws, each once.
    draws: (seeds, classes, most shots) indices into `train`; the first k of a class are its shots.
    test: the test images.
  """

  settings: FewShot
  train: "sources.Source"
  draws: np.ndarray
  test: "sources.Source"

  def score(self, context: EvalContext, params) -> Result:
    """As `metrics_of`, from a probe for each number of shots and each draw."""
    representation = self.settings.representation
    how = self.settings.resizing(context.reader.settings)
    seen, labels = features.of_source(context, params, self.train, representation, "train", **how)
    probes = []
    context.progress.doing(f"{context.name}: fitting probes")
    for k in self.settings.shots:
      for draw in self.draws:
        context.raise_if_stopped()
        rows = draw[:, :k].ravel()
        probes.append(fit(seen[rows], labels[rows], len(self.test.class_names)))
    probes = meshes.replicate(context.reader.mesh, stack(probes))
    with context.batches(context.reader.evaluation(self.test, **how), "test") as batches:
      accuracy = accuracies(context.compiled(make_step, representation), params, probes, batches)
    return Result(metrics_of(self.settings.shots, accuracy.reshape(-1, self.settings.seeds)))

  def resizing_in_words(self, data: Data) -> str:
    """As `Evaluator.resizing_in_words`."""
    return crops.resampling_in_words(data, **self.settings.resizing(data))


def most_shots(shots: tuple, key: str) -> int:
  """The greatest number of shots of the setting `key`.

  Raises:
    ConfigError: they are not positive whole numbers.
  """
  if not shots or any(type(k) is not int or k < 1 for k in shots) or len({*shots}) < len(shots):
    raise ConfigError(
      f"{key}.shots={shown(shots)} must be different numbers of images, such as (1, 5)."
    )
  return max(shots)


@dataclasses.dataclass(frozen=True)
class Probe:
  """A linear classifier on features, in float64.

  Attributes:
    mean: (D,), subtracted from the features.
    deviation: (D,), divides them afterwards.
    weights: (D + 1, K); the last row belongs to the constant.
  """

  mean: np.ndarray
  deviation: np.ndarray
  weights: np.ndarray


def fit(features: np.ndarray, labels: np.ndarray, num_classes: int) -> Probe:
  """Solves the ridge regression by an eigendecomposition of the smaller of X^T X and X X^T.

  The host solves it in float64: TPUs have no float64, and a training run may fill their memory.

  Args:
    features: (N, D).
    labels: (N,) in [0, num_classes).
    num_classes: K.
  """
  x = features.astype(np.float64)
  mean = x.mean(axis=0)
  deviation = x.std(axis=0) + EPSILON
  x = np.concatenate([(x - mean) / deviation, np.full((len(x), 1), CONSTANT)], axis=1)
  y = np.where(labels[:, None] == np.arange(num_classes), 1.0, -1.0)
  return Probe(mean, deviation, ridge(x, y))


def ridge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """(X^T X + lambda I)^-1 X^T Y = X^T (X X^T + lambda I)^-1 Y; (N, D), (N, K) -> (D, K)."""
  if len(x) >= x.shape[1]:
    return regularized_inverse(x.T @ x, x.T @ y)
  return x.T @ regularized_inverse(x @ x.T, y)


def regularized_inverse(gram: np.ndarray, right: np.ndarray) -> np.ndarray:
  """(G + lambda I)^-1 R for a symmetric G (n, n) and R (n, K)."""
  values, vectors = np.linalg.eigh(gram)
  return vectors @ ((vectors.T @ right) / (values + RIDGE)[:, None])


def stack(probes: list[Probe]) -> dict[str, np.ndarray]:
  """The arrays of several probes for the compiled step: float32, one row for each probe."""
  return {
    "mean": np.stack([p.mean for p in probes]).astype(np.float32),
    "deviation": np.stack([p.deviation for p in probes]).astype(np.float32),
    "kernel": np.stack([p.weights[:-1] for p in probes]).astype(np.float32),
    "bias": np.stack([CONSTANT * p.weights[-1] for p in probes]).astype(np.float32),
  }


def make_step(model, representation: str):
  """The function (params, probes, batch) -> sums over the batch's images whose mask is 1.

  The probes come from `stack`. The sums are "right", one for each probe, "examples", and
  "not_finite", the number of images whose features are not finite.
  """

  def step(params, probes, batch):
    seen = features.features_of(model, params, batch["image"], representation)

    def predict(probe):
      white = (seen - probe["mean"]) / probe["deviation"]
      scores = jnp.matmul(white, probe["kernel"], precision="highest") + probe["bias"]
      return jnp.argmax(scores, axis=-1)

    right = jax.lax.map(predict, probes) == batch["labels"]
    wrong = ~jnp.isfinite(seen).all(axis=-1)
    return dict(
      right=jnp.sum(right * batch["mask"], axis=-1),
      examples=jnp.sum(batch["mask"]),
      not_finite=jnp.sum(wrong * batch["mask"]),
    )

  return step


def accuracies(step, params, probes, batches) -> np.ndarray:
  """The fraction of images that each probe classifies correctly; raises NotFinite."""
  totals = {}
  for sums in one_behind(step(params, probes, batch) for batch in batches):
    add(totals, sums)
  check_finite(totals["not_finite"], totals["examples"], "the features")
  return totals["right"] / totals["examples"]


def metrics_of(shots: tuple[int, ...], accuracy: np.ndarray) -> dict[str, float]:
  """{"5shot": mean, "5shot_std": standard deviation (divided by n), ...} over the seeds.

  One seed has no deviation.

  Args:
    shots: numbers of training images of each class.
    accuracy: (shots, seeds).
  """
  result = {}
  for k, values in zip(shots, accuracy, strict=True):
    result[f"{k}shot"] = float(values.mean())
    if len(values) > 1:
      result[f"{k}shot_std"] = float(values.std())
  return result
