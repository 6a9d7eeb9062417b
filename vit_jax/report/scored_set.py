"""The details of one evaluation, as --mode=evaluate or the end of a run wrote them."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax.evaluation import catalogue, details, examples, results
from vit_jax.storage import files, workdir

MAX_SETS = 12  # evaluations of a run that are shown


@dataclasses.dataclass(frozen=True)
class ScoredSet:
  """An evaluation with details.

  Attributes:
    name: such as "val".
    place: where it lies in the workdir, such as "evaluation/3"; tells apart evaluations that
      differ in settings alone.
    metrics: of figures.json: which images and parameters were scored, then metrics.
    classes: (name, images, right) each.
    names, labels, predictions: (N,) texts of each image.
    probabilities: (N,) of the predictions.
    confusion: (classes, classes) numbers of images by label and prediction; None: not known.
    images: PNG files by row of the predictions.
    pictures: other PNG files by name, such as "patches".
  """

  name: str
  place: str
  metrics: Mapping[str, float | str]
  classes: Sequence[tuple[str, int, int]]
  names: np.ndarray
  labels: np.ndarray
  predictions: np.ndarray
  probabilities: np.ndarray
  confusion: np.ndarray | None
  images: Mapping[int, pathlib.Path]
  pictures: Mapping[str, pathlib.Path]

  @property
  def origin(self) -> str:
    """Which images and which parameters were scored, if that is known, and its place."""
    return ", ".join(filter(None, [results.origin_in_words(self.metrics), self.place]))

  @property
  def whose(self) -> str:
    """Its name and origin."""
    return f"{self.name}: {self.origin}"

  @property
  def images_in_words(self) -> str:
    """Its name, and its images if they are known, for what other parameters make of them."""
    return results.whose(self.name, {results.DATASET: self.metrics.get(results.DATASET, "")})

  @property
  def score(self) -> str:
    """The figures in words; "" if some are missing."""
    try:
      return catalogue.in_words({f"{self.name}/{key}": x for key, x in self.metrics.items()})
    except (KeyError, ValueError, TypeError):  # a file of a stranger
      return ""


def read_all(folder: pathlib.Path) -> tuple[list[ScoredSet], list[str]]:
  """The evaluations of a workdir, the newest first, and a sentence about each that is damaged.

  One that was repeated with the same result is there once. Of very many they are the newest.
  """
  found, wrong = [], []
  for path in workdir.details(folder):
    if len(found) + len(wrong) == MAX_SETS:
      break
    try:
      one = read(path)
      same = [other for other in found if (other.name, other.metrics) == (one.name, one.metrics)]
      if not (one.metrics and same):
        found.append(one)
    except (OSError, ValueError, OverflowError, csv.Error, RecursionError) as error:
      wrong.append(f"The details in {path} cannot be read and are left out: {error}.")
  return found, wrong


def read(folder: pathlib.Path) -> ScoredSet:
  """The set in a folder; files that are not there are left out.

  Raises:
    OSError, ValueError, OverflowError, csv.Error: a file is damaged.
  """
  rows = rows_of(folder / details.PREDICTIONS, 4)
  names, labels, predicted, probability = zip(*rows, strict=True) if rows else [()] * 4
  own = {path.stem: path for path in files.matching(folder, "*.png")}
  return ScoredSet(
    name=folder.name,
    place="/".join(folder.parts[-3:-1]),
    metrics=results.recorded(folder),
    classes=[(name, int(n), int(r)) for name, n, r, _ in rows_of(folder / details.CLASSES, 4)],
    names=np.array(names, object),
    labels=np.array(labels, object),
    predictions=np.array(predicted, object),
    probabilities=np.array(probability, float),
    confusion=matrix_of(folder / details.CONFUSION),
    images=numbered(folder / examples.IMAGES),
    pictures={name: path for name, path in own.items() if name != "confusion"},
  )


def rows_of(path: pathlib.Path, columns: int = 0) -> list[list[str]]:
  """The rows of a CSV file below its header, [] if it is not there.

  Raises:
    OSError, ValueError, csv.Error: it cannot be read, or a row has not as many columns.
  """
  if not files.is_file(path):
    return []
  text = files.read_bytes(path, most=details.MAX_BYTES).decode()
  rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
  if any(len(row) != (columns or len(rows) + 1) for row in rows):
    raise ValueError(f"{path.name} has rows of different lengths")
  return rows


def matrix_of(path: pathlib.Path) -> np.ndarray | None:
  """The confusion matrix; None if it is not there.

  Raises:
    OverflowError: a number is too large; also raises as `rows_of`.
  """
  rows = rows_of(path)
  return np.array([row[1:] for row in rows], int) if rows else None


def numbered(folder: pathlib.Path) -> dict[int, pathlib.Path]:
  """The files FOLDER/NUMBER.png by number."""
  found = {path.stem: path for path in files.matching(folder, "*.png") if path.stem.isdecimal()}
  return {int(stem): found[stem] for stem in sorted(found, key=int)}
