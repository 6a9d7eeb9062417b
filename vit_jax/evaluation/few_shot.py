"""Few-shot accuracy: a linear probe on frozen features, in closed form (Section 4.1).

X (N, D + 1) are the features of the k training images of each class, whitened with their own mean
and (standard deviation + 1e-5), and a constant 100; Y (N, K) is 1 for the image's class and -1 for
the others. W = argmin |X W - Y|^2 + lambda |W|^2 with lambda = 2^10. Constants and whitening are
those of big_vision's evaluators/fewshot_lsr.py.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.evaluation.classification import add
from vit_jax.evaluation.features import features_of

CONSTANT = 100.0
RIDGE = 2.0**10
EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class Probe:
  """A linear classifier on features, in float64.

  Attributes:
    mean: (D,), taken off the features.
    deviation: (D,), what they are then divided by.
    weights: (D + 1, K), the last row for the constant.
  """

  mean: np.ndarray
  deviation: np.ndarray
  weights: np.ndarray


def fit(features: np.ndarray, labels: np.ndarray, num_classes: int) -> Probe:
  """The ridge regression, through the eigen-decomposition of the smaller of X^T X and X X^T.

  In float64 on the host: TPUs have none, and their memory may be full of a training run.

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
  """(X^T X + lambda I)^-1 X^T Y, which is X^T (X X^T + lambda I)^-1 Y. (N, D), (N, K) -> (D, K)."""
  if len(x) >= x.shape[1]:
    return regularized_inverse(x.T @ x, x.T @ y)
  return x.T @ regularized_inverse(x @ x.T, y)


def regularized_inverse(gram: np.ndarray, right: np.ndarray) -> np.ndarray:
  """(G + lambda I)^-1 R for a symmetric G (n, n) and R (n, K)."""
  values, vectors = np.linalg.eigh(gram)
  return vectors @ ((vectors.T @ right) / (values + RIDGE)[:, None])


def stack(probes: list[Probe]) -> dict[str, np.ndarray]:
  """What the compiled step needs of several probes, float32, one a row."""
  return {
    "mean": np.stack([p.mean for p in probes]).astype(np.float32),
    "deviation": np.stack([p.deviation for p in probes]).astype(np.float32),
    "kernel": np.stack([p.weights[:-1] for p in probes]).astype(np.float32),
    "bias": np.stack([CONSTANT * p.weights[-1] for p in probes]).astype(np.float32),
  }


def make_step(model):
  """The function (params, probes, batch) -> sums over the batch's images whose mask is 1.

  The probes are those of `stack`; the sums are "right", one for each probe, and "examples".
  """

  def step(params, probes, batch):
    features = features_of(model, params, batch["image"])

    def predict(probe):
      white = (features - probe["mean"]) / probe["deviation"]
      scores = jnp.matmul(white, probe["kernel"], precision="highest") + probe["bias"]
      return jnp.argmax(scores, axis=-1)

    right = jax.lax.map(predict, probes) == batch["labels"]
    return dict(right=jnp.sum(right * batch["mask"], axis=-1), examples=jnp.sum(batch["mask"]))

  return step


def accuracies(step, params, probes, batches, *, stop=lambda: False) -> np.ndarray | None:
  """The share of images that each probe is right about; None where `stop()` came true."""
  totals, before = {}, {}
  for batch in batches:
    if stop():
      return None
    current = step(params, probes, batch)
    add(totals, before)
    before = current
  add(totals, before)
  return totals["right"] / totals["examples"]


def figures(shots: tuple[int, ...], accuracy: np.ndarray) -> dict[str, float]:
  """{"5shot": mean, "5shot_std": standard deviation, ...} over the seeds.

  Args:
    shots: numbers of training images of each class.
    accuracy: (shots, seeds).
  """
  result = {}
  for k, values in zip(shots, accuracy, strict=True):
    result |= {f"{k}shot": float(values.mean()), f"{k}shot_std": float(values.std())}
  return result
