"""The details of one evaluation, as --mode=evaluate or the end of a run wrote them."""

import csv
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax.evaluation import catalogue, examples, results
from vit_jax.evaluation.results import count_of, rows_of
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path

MAX_SETS = 12  # evaluations of a run that are shown


@dataclasses.dataclass(frozen=True)
class ScoredSet:
  """An evaluation with details.

  Attributes:
    name: such as "val".
    place: its folder in the workdir, such as "evaluation/3"; tells apart evaluations that differ
      only in their settings.
    metrics: the content of metrics.json: which images and parameters were scored, then metrics.
    classes: (name, number of images, number of correct predictions) each.
    names, labels, predictions: (N,) strings, one for each image.
    probabilities: (N,) probabilities of the predictions.
    confusion: (classes, classes) numbers of images by label and prediction; None if not known.
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
  images: Mapping[int, Path]
  pictures: Mapping[str, Path]

  @property
  def origin(self) -> str:
    """Which images and which parameters were scored, if known, and the place."""
    return ", ".join(filter(None, [results.origin_in_words(self.metrics), self.place]))

  @property
  def images_in_words(self) -> str:
    """Its name and, if known, its images: for captions about other parameters."""
    return results.whose(self.name, {results.DATASET: self.metrics.get(results.DATASET, "")})

  @property
  def score(self) -> str:
    """The metrics in words; "" if some are missing."""
    try:
      return catalogue.in_words({f"{self.name}/{key}": x for key, x in self.metrics.items()})
    except (KeyError, ValueError, TypeError):  # another version wrote them
      return ""


def read_all(folder: Path) -> tuple[list[ScoredSet], list[str]]:
  """The newest evaluations of a workdir, newest first, and a sentence about each damaged one.

  An evaluation that was repeated with the same result appears once.
  """
  sets = []
  damaged = []
  for path in workdir.details(folder):
    if len(sets) + len(damaged) == MAX_SETS:
      break
    try:
      new = read_scored_set(path)
      if not any(same(new, other) for other in sets):
        sets.append(new)
    except (OSError, ValueError, csv.Error) as error:
      damaged.append(f"The details in {path} cannot be read and are left out: {error}.")
  return sets, damaged


def same(one: ScoredSet, other: ScoredSet) -> bool:
  """Whether two evaluations have the same name and the same metrics; False without metrics."""
  return bool(one.metrics) and one.name == other.name and one.metrics == other.metrics


def read_scored_set(folder: Path) -> ScoredSet:
  """The set in a folder; missing files are left out.

  Raises:
    OSError, ValueError, csv.Error: a file is damaged.
  """
  rows = rows_of(folder / results.PREDICTIONS, 4)
  columns = [()] * 4
  if rows:
    columns = zip(*rows, strict=True)
  names, labels, predicted, probability = columns
  drawn = {path.stem: path for path in files.matching(folder, "*.png")}
  return ScoredSet(
    name=folder.name,
    place="/".join(folder.parts[-3:-1]),
    metrics=results.recorded(folder),
    classes=[
      (name, count_of(n), count_of(r))
      for name, n, r, *_ in rows_of(folder / results.CLASSES, 4, len(results.OF_CLASSES))
    ],
    names=np.array(names, object),
    labels=np.array(labels, object),
    predictions=np.array(predicted, object),
    probabilities=np.array(probability, float),
    confusion=results.read_confusion(folder)[1],
    images=numbered(folder / examples.IMAGES),
    pictures={name: path for name, path in drawn.items() if name != "confusion"},
  )


def numbered(folder: Path) -> dict[int, Path]:
  """The files FOLDER/NUMBER.png by number, ascending."""
  paths = [path for path in files.matching(folder, "*.png") if path.stem.isdecimal()]
  return {int(path.stem): path for path in sorted(paths, key=lambda path: int(path.stem))}
