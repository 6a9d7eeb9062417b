"""All probes of one model on one set of images."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vit_jax.extras.probes import attentive, few_shot, linear, logistic, neighbours, scores
from vit_jax.extras.probes.fitted import Features, Fitted
from vit_jax.extras.probes.parts import Parts
from vit_jax.extras.probes.request import KINDS
from vit_jax.process.progress import NoProgress, Progress

WITH_PATCHES = tuple(attentive.DEPTHS)
SEEDED = ("logistic", "linear", "few_shot", *WITH_PATCHES)  # the others have no random part


@dataclasses.dataclass(frozen=True)
class Outcome:
  """The scores of one classifier.

  Attributes:
    name: of the classifier, such as "20-nn".
    scores: for each seed the scores by name, as `scores.of_logits`; or the accuracy alone.
    chosen: for each seed, the settings that were chosen, in words.
    first: the classifier of the first seed; None: it scores no single images.
  """

  name: str
  scores: Sequence[dict[str, float]]
  chosen: Sequence[str]
  first: Fitted | None = None

  def mean(self, key: str) -> float | None:
    """The mean of a score over the seeds; None if one of them lacks it."""
    values = self._values(key)
    if not values:
      return None
    return float(np.mean(values))

  def deviation(self, key: str) -> float | None:
    """The standard deviation (divided by n) over the seeds; None as `mean`, and of one seed."""
    values = self._values(key)
    if len(values) < 2:
      return None
    return float(np.std(values))

  def names(self) -> list[str]:
    """The scores that every seed has."""
    return [key for key in self.scores[0] if all(key in each for each in self.scores)]

  def _values(self, key):
    if key not in self.names():
      return []
    return [each[key] for each in self.scores]


def outcomes(
  chosen: Sequence[str],
  parts: Parts,
  train: Features,
  test: Features,
  *,
  seeds: int,
  class_token: bool,
  steps: int,
  progress: Progress | NoProgress,
) -> list[Outcome]:
  """Fits and scores the classifiers of these kinds, each for the seeds 0, 1, ...

  Args:
    chosen: some of `KINDS`.
    parts: the images.
    train, test: their features.
    seeds: number of seeds; those without a random part are fitted once.
    class_token: whether the model has one.
    steps: of the linear probe.
    progress: shows how far the work is.
  """
  result = []
  for kind in (kind for kind in KINDS if kind in chosen):
    found = {}
    for seed in range(seeds if kind in SEEDED else 1):
      what = f"{kind}, seed {seed}"
      show = functools.partial(counted, progress, what)
      for name, fitted in fits(kind, parts, train, seed, class_token, steps, show):
        found.setdefault(name, []).append(fitted)
    for name, each in found.items():
      result.append(outcome(name, each, test, parts.test_labels))
  return result


def counted(progress: Progress | NoProgress, what: str, images: int) -> Callable[[int], None]:
  """Begins to count images in the progress."""
  return progress.images(what, images).done


def fits(
  kind: str,
  parts: Parts,
  train: Features,
  seed: int,
  class_token: bool,
  steps: int,
  show: Callable[[int], Callable[[int], None]],
) -> Iterator[tuple[str, Fitted]]:
  """Yields (name, classifier) of a kind, for one seed.

  `show` is called with the number of images to count, and what it returns with those just done.
  """
  labels = parts.labels
  classes = len(parts.class_names)
  common = (train, labels, classes)
  if kind == "knn":
    yield from neighbours.fits(*common)
  elif kind == "few_shot":
    yield from few_shot.fits(train, labels, parts.train.source, classes, seed)
  elif kind == "logistic":
    yield kind, logistic.fit(*common, seed, show)
  elif kind == "linear":
    yield kind, linear.fit(*common, seed, show, class_token=class_token, steps=steps)
  else:
    yield kind, attentive.fit(*common, seed, show, depth=attentive.DEPTHS[kind])


def outcome(name: str, fitted: Sequence[Fitted], test: Features, labels: np.ndarray) -> Outcome:
  """The scores of a classifier of several seeds on test images."""
  found = [scored(each, test, labels) for each in fitted]
  return Outcome(name, found, [each.chosen for each in fitted], fitted[0])


def scored(fitted: Fitted, test: Features, labels: np.ndarray) -> dict[str, float]:
  """The scores of one classifier on images."""
  outputs = fitted.scores(test)
  if not fitted.logits:
    return {"accuracy": scores.accuracy(outputs, labels)}
  return scores.of_logits(outputs, labels, fitted.temperature)
