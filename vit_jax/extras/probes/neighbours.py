"""A vote of the nearest training images (DINO, DINOv2 and DINOv3): k = 10, 20, 100 and 200."""

import functools
from collections.abc import Iterator

import numpy as np

from vit_jax.evaluation import features as unit_features
from vit_jax.evaluation import nearest_neighbours
from vit_jax.extras.probes.fitted import Features, Fitted

NEIGHBOURS = (10, 20, 100, 200)
TEMPERATURE = 0.07


class Bank:
  """Training images that vote; keeps the neighbours of the images that it was asked for last."""

  def __init__(self, train: Features, labels: np.ndarray, classes: int):
    """Features, and labels (N,) below `classes`."""
    self._bank = unit_features.unit(train["pre_logits"])
    self._labels = labels
    self._classes = classes
    self._most = max((count for count in NEIGHBOURS if count <= len(labels)), default=0)
    self._last = (None, None)

  def votes(self, count: int, test: Features) -> np.ndarray:
    """The votes for each class, (M, K), of `count` neighbours: `nearest_neighbours.votes`."""
    asked, found = self._last
    if asked is not test["pre_logits"]:
      asked = test["pre_logits"]
      found = nearest_neighbours.nearest(self._bank, unit_features.unit(asked), self._most)
      self._last = (asked, found)
    similarities, rows = (array[:, :count] for array in found)
    return nearest_neighbours.votes(
      similarities, self._labels[rows], num_classes=self._classes, temperature=TEMPERATURE
    )


def fits(train: Features, labels: np.ndarray, classes: int) -> Iterator[tuple[str, Fitted]]:
  """Yields (name, classifier) for each number of neighbours that is not above that of images."""
  bank = Bank(train, labels, classes)
  for count in NEIGHBOURS:
    if count <= len(labels):
      yield f"{count}-nn", Fitted(functools.partial(bank.votes, count))


def left_out(images: int) -> str:
  """The numbers of neighbours that are above the number of training images, in words."""
  more = [str(count) for count in NEIGHBOURS if count > images]
  if not more:
    return ""
  return f"no k = {', '.join(more)}: there are {images} training images"
