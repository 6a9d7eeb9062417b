"""Few-shot accuracy: a linear probe on frozen features, in closed form (Section 4.1).

X (N, D + 1) are the features of the k training images of each class, whitened with their own mean
and (standard deviation + 1e-5), and a constant 100; Y (N, K) is 1 for the image's class and -1 for
the others. W = argmin |X W - Y|^2 + lambda |W|^2 with lambda = 2^10. Constants and whitening are
those of big_vision's evaluators/fewshot_lsr.py.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import config as cfg
from vit_jax.config import Config, ConfigError
from vit_jax.data.by_label import first_of_each_class
from vit_jax.data.datasets import NamedDataset, Opener
from vit_jax.data.sources import Listed, Selected, Source, SourceError
from vit_jax.devices import mesh as meshes
from vit_jax.evaluation import features, pairs
from vit_jax.evaluation.adding import add, one_behind
from vit_jax.evaluation.features import features_of
from vit_jax.evaluation.spec import EvalContext, EvaluationSpec, Evaluator, Metric, Result
from vit_jax.process.text import shown

CONSTANT = 100.0
RIDGE = 2.0**10
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class FewShotProbe(Evaluator):
  """The images that linear probes are fitted to and scored on.

  Attributes:
    settings: config.few_shot.NAME.
    train: the training images of all draws, each once.
    draws: (seeds, classes, most shots) indices into `train`; the first k of a class are its shots.
    test: the test images.
  """

  settings: cfg.FewShot
  train: Source
  draws: np.ndarray
  test: Source

  def score(self, context: EvalContext, params) -> Result:
    """As `metrics`, from a probe for each number of shots and each draw."""
    representation = self.settings.representation or context.representation
    seen, labels = features.of_source(context, params, self.train, representation)
    probes = []
    for k in self.settings.shots:
      for draw in self.draws:
        context.raise_if_stopped()
        rows = draw[:, :k].ravel()
        probes.append(fit(seen[rows], labels[rows], len(self.test.class_names)))
    probes = meshes.replicate(context.reader.mesh, stack(probes))
    with context.batches(context.reader.squares(self.test)) as batches:
      accuracy = accuracies(context.compiled(make_step, representation), params, probes, batches)
    return Result(metrics(self.settings.shots, accuracy.reshape(-1, self.settings.seeds)))


def open_all(
  settings: Mapping[str, cfg.FewShot],
  opener: Opener,
  trained: Sequence[NamedDataset],
  classes: Sequence[str] | None,
) -> dict[str, FewShotProbe]:
  """Draws the training images of each probe; arguments as in `EvaluationSpec.open`.

  Raises:
    ConfigError: shots are not numbers of images, or as `pairs.open_pair`.
    SourceError: data is missing, or a class has fewer images than shots.
  """
  return {
    name: drawn(f"config.few_shot.{name}", one, opener, trained) for name, one in settings.items()
  }


def drawn(
  key: str, settings: cfg.FewShot, opener: Opener, trained: Sequence[NamedDataset]
) -> FewShotProbe:
  """Draws the training images of the setting `key`; raises as `open_all`."""
  most = most_shots(settings.shots, key)
  train, test = pairs.open_pair(key, settings, opener, trained)
  try:
    draws = [
      first_of_each_class(train, count=most, seed=seed, threads=opener.threads)
      for seed in range(settings.seeds)
    ]
  except SourceError as error:
    raise SourceError(f"{key}.train ({settings.train.source}): {error}.") from error
  rows, places = np.unique(np.stack(draws), return_inverse=True)
  held = Selected(train, Listed(rows), f"{train.identity}, {key}")
  return FewShotProbe(settings, held, places.reshape(np.shape(draws)), test)


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

  It is solved in float64 on the host: TPUs have no float64, and a training run may fill their
  memory.

  Args:
    features: (N, D).
    labels: (N,) in [0, num_classes).
    num_classes: K.
  """
  x = features.astype(np.float64)
  mean, deviation = x.mean(axis=0), x.std(axis=0) + EPSILON
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

  The probes come from `stack`. The sums are "right", one for each probe, and "examples".
  """

  def step(params, probes, batch):
    seen = features_of(model, params, batch["image"], representation)

    def predict(probe):
      white = (seen - probe["mean"]) / probe["deviation"]
      scores = jnp.matmul(white, probe["kernel"], precision="highest") + probe["bias"]
      return jnp.argmax(scores, axis=-1)

    right = jax.lax.map(predict, probes) == batch["labels"]
    return dict(right=jnp.sum(right * batch["mask"], axis=-1), examples=jnp.sum(batch["mask"]))

  return step


def accuracies(step, params, probes, batches) -> np.ndarray:
  """The share of images that each probe classifies correctly."""
  totals = {}
  for sums in one_behind(step(params, probes, batch) for batch in batches):
    add(totals, sums)
  return totals["right"] / totals["examples"]


def metrics(shots: tuple[int, ...], accuracy: np.ndarray) -> dict[str, float]:
  """{"5shot": mean, "5shot_std": standard deviation (divided by n), ...} over the seeds.

  Args:
    shots: numbers of training images of each class.
    accuracy: (shots, seeds).
  """
  result = {}
  for k, values in zip(shots, accuracy, strict=True):
    result |= {f"{k}shot": float(values.mean()), f"{k}shot_std": float(values.std())}
  return result


def settings_of(config: Config) -> dict[str, cfg.FewShot]:
  """The probes of config.few_shot that have both sources."""
  return pairs.with_sources(config.few_shot)


def in_words(metric: str, metrics: Mapping[str, float]) -> str:
  """The mean over the draws, and their standard deviation."""
  shots, deviation = metric.removesuffix("shot"), metrics[f"{metric}_std"]
  return f"{shots}-shot {metrics[metric]:.2%} +- {deviation:.2%}"


SPEC = EvaluationSpec(
  group="config.few_shot",
  settings=settings_of,
  open=open_all,
  metrics=(Metric(r"\d+shot", headline=True),),
  names=lambda settings, _: [f"{k}shot" for k in settings.shots],
  in_words=in_words,
)
