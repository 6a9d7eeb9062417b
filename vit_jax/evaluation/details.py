"""Details of a set's metrics: every prediction, the accuracy by class, the confusion matrix."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence

import jax
import numpy as np

from vit_jax.process import csv_text
from vit_jax.process.text import shown
from vit_jax.storage import files
from vit_jax.storage.paths import Path

PREDICTIONS = "predictions.csv"
CLASSES = "classes.csv"
CONFUSION = "confusion.csv"
COLUMNS = ("name", "label", "prediction", "probability")  # of PREDICTIONS
BINS = 15  # of probability, for the calibration error
MAX_BYTES = 2**28  # of a file that is read back
MAX_IMAGES = 10**12  # of an evaluation
MAX_CLASSES = 2000  # above this, a table of classes by classes is too large to be useful


class Kept:
  """Collects the rows of `classification.make_step` over batches."""

  def __init__(self):
    self._batches = []

  def add(self, rows: dict[str, jax.Array]):
    """Keeps the images of a batch that count."""
    rows = jax.device_get(rows)
    counts = rows["counts"] > 0
    columns = ("labels", "prediction", "probability")
    self._batches.append([rows[column][counts] for column in columns])

  def joined(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, predictions and their probabilities, (N,) each, in the order of the source."""
    return tuple(np.concatenate(column) for column in zip(*self._batches, strict=True))


@dataclasses.dataclass(frozen=True)
class Details:
  """Predictions of all images of a set with one label each.

  Attributes:
    class_names: names of the classes, by number.
    labels, predictions: (N,) numbers of classes.
    probabilities: (N,) probabilities of the predictions.
    name: (row) -> name of the image.
  """

  class_names: Sequence[str]
  labels: np.ndarray
  predictions: np.ndarray
  probabilities: np.ndarray
  name: Callable[[int], str]


def distinct(names: Sequence[str]) -> tuple[str, ...]:
  """Names of classes that are all different: the number is added to one that occurs twice.

  ImageNet, for example, has two classes called crane.
  """
  count = collections.Counter(names)

  def numbered(number: int, name: str) -> str:
    if count[name] == 1:
      return name
    return f"{name} (class {number})"

  return tuple(numbered(number, name) for number, name in enumerate(names))


def write(folder: Path, details: Details):
  """Writes predictions.csv, classes.csv and, for up to 2,000 classes, confusion.csv.

  Raises:
    OSError: the files cannot be written.
  """
  files.make_folder(folder)
  names = details.class_names
  files.write_csv(folder / PREDICTIONS, predictions(details))
  files.write_csv(folder / CLASSES, classes(details))
  if len(names) <= MAX_CLASSES:
    matrix = confusion(details.labels, details.predictions, len(names))
    rows = ([name, *counts] for name, counts in zip(names, matrix.tolist(), strict=True))
    files.write_csv(folder / CONFUSION, [["label / prediction", *names], *rows])


def predictions(details: Details) -> Iterable[list]:
  """A header, and a row for each image; nine digits distinguish all float32 numbers."""
  yield list(COLUMNS)
  columns = zip(details.labels, details.predictions, details.probabilities, strict=True)
  for row, (label, prediction, probability) in enumerate(columns):
    names = details.class_names[label], details.class_names[prediction]
    yield [details.name(row), *names, f"{probability:.9g}"]


def classes(details: Details) -> Iterable[list]:
  """A header, and a row for each class; the accuracy is empty for a class without images."""
  yield ["class", "images", "right", "accuracy"]
  count = len(details.class_names)
  images = np.bincount(details.labels, minlength=count).tolist()
  hits = details.labels[details.labels == details.predictions]
  right = np.bincount(hits, minlength=count).tolist()
  for name, n, r in zip(details.class_names, images, right, strict=True):
    accuracy = ""
    if n:
      accuracy = f"{r / n:.6f}"
    yield [name, n, r, accuracy]


def confusion(labels: np.ndarray, predictions: np.ndarray, count: int) -> np.ndarray:
  """The number of images of each class (rows) with each prediction (columns), (count, count)."""
  cells = np.bincount(labels.astype(np.int64) * count + predictions, minlength=count * count)
  return cells.reshape(count, count)


def read_confusion(folder: Path) -> tuple[list[str], np.ndarray | None]:
  """The names of the classes and the matrix of confusion.csv; ([], None) if it is not there.

  Raises:
    OSError, ValueError, csv.Error: the file is damaged.
  """
  rows = rows_of(folder / CONFUSION)
  if not rows:
    return [], None
  names = [row[0] for row in rows]
  return names, np.array([list(map(count, row[1:])) for row in rows])


def rows_of(path: Path, columns: int = 0) -> list[list[str]]:
  """The rows of a CSV file below its header; [] if there is no file.

  Args:
    path: the file.
    columns: the number of columns; 0: one more than rows, as in a confusion matrix.

  Raises:
    OSError, ValueError, csv.Error: it cannot be read, or a row has another number of columns.
  """
  if not files.is_file(path):
    return []
  text = files.read_bytes(path, most=MAX_BYTES).decode()
  rows = list(csv_text.rows(text))[1:]
  if any(len(row) != (columns or len(rows) + 1) for row in rows):
    raise ValueError(f"{path.name} has rows of different lengths")
  return rows


def count(text: str) -> int:
  """The number of images in a cell.

  Raises:
    ValueError: the text is not such a number.
  """
  number = int(text)
  if not 0 <= number <= MAX_IMAGES:
    raise ValueError(f"{shown(text)} is no number of images")
  return number
