"""Some images of a set, kept as the model saw them, so that a report can show them."""

from collections.abc import Callable, Mapping

import numpy as np

from vit_jax.data import tiles
from vit_jax.data.images import BadImage
from vit_jax.storage import files
from vit_jax.storage.paths import Path

IMAGES = "images"  # folder of the images of a set
SHOWN = 8  # worst mistakes at most, and other images


def chosen(labels: np.ndarray, predictions: np.ndarray, probabilities: np.ndarray) -> list[int]:
  """The rows that are kept: `evenly` and `worst`, ascending."""
  return sorted({*evenly(len(labels)), *worst(labels, predictions, probabilities)})


def evenly(count: int) -> list[int]:
  """Rows of a set of `count` images at equal distances, at most SHOWN."""
  shown = min(SHOWN, count)
  return [i * count // shown for i in range(shown)]


def worst(labels: np.ndarray, predictions: np.ndarray, probabilities: np.ndarray) -> list[int]:
  """The rows of the wrong predictions with the highest probability, the worst first.

  Args:
    labels, predictions: (N,) numbers or names of classes.
    probabilities: (N,) of the predictions.
  """
  wrong = np.flatnonzero(labels != predictions)
  order = np.argsort(-probabilities[wrong], kind="stable")
  return wrong[order[:SHOWN]].tolist()


def read_images(rows: list[int], image: Callable[[int], np.ndarray]) -> dict[int, np.ndarray]:
  """The images of rows, (S, S, 3) uint8 each, without those that can no longer be read."""
  images = {}
  for row in rows:
    try:
      images[row] = image(row)
    except (BadImage, OSError):
      continue
  return images


def write(folder: Path, images: Mapping[int, np.ndarray]):
  """Writes each image as FOLDER/ROW.png, in place of those that an earlier run left there.

  Raises:
    OSError: the folder cannot be written to.
  """
  files.remove(folder)
  files.make_folder(folder)
  for row, image in images.items():
    files.write_bytes(folder / f"{row}.png", tiles.png(image))
