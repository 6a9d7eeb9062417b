"""Logistic regression with 45 strengths of the penalty (DINOv2 and DINOv3, log_regression.py).

Minimises C sum_i NLL_i + |W|^2 / 2 by L-BFGS, for 45 values of C from 1e-6 to 1e5. The value is
chosen on a held-out tenth; the final classifier is fitted to all training images. scikit-learn
computes it in float64 on the host.
"""

import functools
import warnings
from collections.abc import Callable

import numpy as np

from vit_jax.extras.probes import scores
from vit_jax.extras.probes.fitted import Features, Fitted
from vit_jax.extras.probes.parts import held_out

STRENGTHS = np.logspace(-6, 5, 45)
ITERATIONS = 1000
TOLERANCE = 1e-6  # of the gradient of the mean
SMALL = 2**24  # numbers in the features; up to here one thread of NumPy is faster than several


def fit(
  train: Features,
  labels: np.ndarray,
  classes: int,
  seed: int,
  show: Callable[[int], Callable[[int], None]] = lambda total: lambda images: None,
) -> Fitted:
  """Fits it; `seed` draws the held-out tenth.

  Args:
    train: features; the representation counts.
    labels: (N,) in [0, classes); every class occurs.
    classes: K.
    seed: of the draw.
    show: as for `probe.fits`; the images of each fit count after it.
  """
  from threadpoolctl import threadpool_limits

  x = np.float64(train["pre_logits"])
  rows, held = held_out(labels, seed)
  done = show(len(STRENGTHS) * len(rows) + len(labels))
  most = None
  if x.size <= SMALL:
    most = 1
  with threadpool_limits(most):
    best, heat = chosen(x[rows], labels[rows], x[held], labels[held], done)
    final = regression(best)
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # of the limit on iterations, which belongs to the protocol
      final.fit(x, labels)
  done(len(x))
  predict = functools.partial(logits_of_features, final)
  return Fitted(predict, logits=True, temperature=heat, chosen=f"C = {best:.3g}")


def chosen(
  x: np.ndarray, labels: np.ndarray, held: np.ndarray, held_labels: np.ndarray, done: Callable
) -> tuple[float, float | None]:
  """The best C on held-out features, and the temperature for its logits, as `scores.best`.

  Each fit starts from the one before, whose C is smaller.
  """
  model = regression(STRENGTHS[0])
  model.warm_start = True
  found = []
  for strength in STRENGTHS:
    model.C = strength
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # as in `fit`
      model.fit(x, labels)
    found.append((float(strength), logits_of(model, held)))
    done(len(x))
  return scores.best(found, held_labels)


def regression(strength: float):
  """scikit-learn's logistic regression with C = `strength`."""
  from sklearn.linear_model import LogisticRegression  # slow to import

  return LogisticRegression(C=strength, max_iter=ITERATIONS, tol=TOLERANCE)


def logits_of(model, x: np.ndarray) -> np.ndarray:
  """The logits (N, K); of two classes, scikit-learn gives only the difference."""
  logits = model.decision_function(x)
  if logits.ndim == 1:
    return np.stack([np.zeros_like(logits), logits], axis=1)
  return logits


def logits_of_features(model, test: Features) -> np.ndarray:
  """The logits (N, K) of features."""
  return logits_of(model, np.float64(test["pre_logits"]))
