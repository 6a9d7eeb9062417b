"""The paper's few-shot probe on features that are there already; see evaluation/few_shot.py."""

import functools
from collections.abc import Iterator

import numpy as np

from vit_jax.data import by_label
from vit_jax.data.sources import Source
from vit_jax.evaluation import few_shot
from vit_jax.extras.probes.fitted import Features, Fitted

SHOTS = (1, 5, 10, 25)
THREADS = 16


def possible(labels: np.ndarray) -> tuple[int, ...]:
  """The numbers of shots that every class has."""
  least = int(np.bincount(labels).min())
  return tuple(shots for shots in SHOTS if shots <= least)


def left_out(labels: np.ndarray) -> str:
  """The numbers of shots that a class lacks, in words."""
  more = [str(shots) for shots in SHOTS if shots not in possible(labels)]
  if not more:
    return ""
  return f"no {', '.join(more)} shots: a class has {int(np.bincount(labels).min())} images"


def fits(
  train: Features, labels: np.ndarray, source: Source, classes: int, seed: int
) -> Iterator[tuple[str, Fitted]]:
  """Yields (name, classifier) for each number of shots; `seed` draws the images of `source`."""
  shots = possible(labels)
  if not shots:
    return
  (draw,) = by_label.first_of_each_class(source, count=max(shots), seeds=[seed], threads=THREADS)
  for count in shots:
    rows = draw[:, :count].ravel()
    probe = few_shot.fit(train["pre_logits"][rows], labels[rows], classes)
    yield f"{count}-shot", Fitted(functools.partial(predict, probe))


def predict(probe: few_shot.Probe, test: Features) -> np.ndarray:
  """The outputs (N, K) of the ridge regression."""
  white = (np.float64(test["pre_logits"]) - probe.mean) / probe.deviation
  return white @ probe.weights[:-1] + few_shot.CONSTANT * probe.weights[-1]
