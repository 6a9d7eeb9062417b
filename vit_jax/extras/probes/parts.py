"""The training images and the test images of a probe."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vit_jax.config import ConfigError, Data
from vit_jax.data import classes, datasets, sources
from vit_jax.data.datasets import History, NamedDataset
from vit_jax.data.sources import Listed, Selected
from vit_jax.process.progress import NoProgress, Progress
from vit_jax.process.text import listed
from vit_jax.recipes import own_images
from vit_jax.recipes.loading import columns_named, keys_of


class Parts(NamedTuple):
  """The images of a probe.

  Attributes:
    train, test: the images; their classes are the same, in the same order.
    labels, test_labels: the class of each image, (N,) int64.
    words: how the two parts were found.
    overlap: the test images that the weights were trained on, as `overlap`.
  """

  train: NamedDataset
  test: NamedDataset
  labels: np.ndarray
  test_labels: np.ndarray
  words: str
  overlap: str

  @property
  def class_names(self) -> tuple[str, ...]:
    """The names of the classes."""
    return tuple(self.train.source.class_names)


def open_parts(
  spec: str,
  trained_on: History,
  progress: Progress | NoProgress,
  *,
  allow_overlap: bool = False,
) -> Parts:
  """Opens images as `vit-jax finetune` does: their train and val parts, or a random tenth is test.

  Args:
    spec: a folder with a folder of images for each class, or any other source; perhaps with the
      keys of its columns.
    trained_on: what the weights were trained on.
    progress: shows what is opened.
    allow_overlap: whether the weights may have been trained on test images.

  Raises:
    ConfigError: the data is missing, an image may have several labels, there is only one class, or
      test images are trained on.
  """
  spec, keys = keys_of(spec)
  spec = sources.meant(spec)
  train, test, words = own_images.parts_of(spec, sources.named_parts(spec))
  own_images.check_part(train)
  if not test.source:
    raise ConfigError(
      f"{spec} has no splits, so there are no test images; give images that come in parts, such as "
      "folders called train and test."
    )
  opener = datasets.opener_of(Data(), progress)
  with columns_named():
    train = opener.labelled("The training images", dataclasses.replace(train, **keys))
    test = opener.labelled("The test images", dataclasses.replace(test, **keys))
  test = classes.matched(test, train.source.class_names, "the training images")
  for named in (train, test):
    if named.source.multi_label:
      raise ConfigError(f"{named} may have several labels each; a probe needs exactly one.")
  common = overlap(train, test, opener.earlier(trained_on, [train]), allow=allow_overlap)
  labels = labels_of(train)
  check_classes(train, labels)
  return Parts(train, test, labels, labels_of(test), words, common)


def with_training(parts: Parts, rows: np.ndarray) -> Parts:
  """The parts with these rows of the training images alone.

  Raises:
    ConfigError: a class has none of them.
  """
  labels = parts.labels[rows]
  source = parts.train.source
  chosen = Selected(source, Listed(rows), f"{source.identity}, {len(rows)} of it")
  train = parts.train._replace(source=chosen)
  check_classes(train, labels)
  return parts._replace(train=train, labels=labels)


def overlap(
  train: NamedDataset, test: NamedDataset, earlier: Sequence[NamedDataset], *, allow: bool
) -> str:
  """The test images that the weights were trained on, in words; "" of none.

  Args:
    train, test: the images of a probe.
    earlier: what its weights were trained on.
    allow: whether there may be such images.

  Raises:
    ConfigError: there are some, and `allow` is False; or training images are scored.
  """
  if common := datasets.shared_images(train.source, test.source):
    raise ConfigError(
      f"{train} and {test} have {common.in_words()} in common; give test images that are not "
      "trained on."
    )
  said = [
    f"{named} and {test} have {common.in_words()} in common"
    for named in earlier
    if (common := datasets.shared_images(named.source, test.source))
  ]
  if said and not allow:
    raise ConfigError(
      f"{'; '.join(said)}; give test images that the weights were not trained on, or allow it with "
      "--allow-overlap."
    )
  return "; ".join(said)


def check_classes(named: NamedDataset, labels: np.ndarray):
  """Checks that there are several classes, and training images of each.

  Raises:
    ConfigError: names the classes without images.
  """
  names = named.source.class_names
  if len(names) < 2:
    raise ConfigError(f"{named} have one class; a probe needs at least two.")
  counts = np.bincount(labels, minlength=len(names))
  without = [name for name, count in zip(names, counts, strict=True) if not count]
  if without:
    raise ConfigError(f"{named} have no image of {listed(without)}; add some, or leave them out.")


def labels_of(named: NamedDataset) -> np.ndarray:
  """The label of each image, (N,) int64.

  Raises:
    ConfigError: an image has no label, or the images of a class are missing.
  """
  source = named.source
  labels = np.array([source.labels(row)[0] for row in range(len(source))], np.int64)
  if len(labels) and not 0 <= labels.min() <= labels.max() < len(source.class_names):
    raise ConfigError(f"{named} have labels of no class, so they cannot be scored; name others.")
  return labels


def held_out(labels: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
  """Rows to fit to, and a random tenth of each class to choose settings on; both ascending.

  Of a class with at least two images, at least one is in each part. A single image is fitted to.

  Raises:
    ConfigError: every class has a single image.
  """
  rng = np.random.default_rng(seed)
  order = rng.permutation(len(labels))
  held = []
  for label in np.unique(labels):
    rows = order[labels[order] == label]
    if len(rows) > 1:
      held.append(rows[: max(1, round(len(rows) / 10))])
  if not held:
    raise ConfigError("Every class has one training image, so none can be held out; add images.")
  held = np.sort(np.concatenate(held))
  return np.setdiff1d(np.arange(len(labels)), held), held
