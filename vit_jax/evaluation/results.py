"""The results of evaluations in a workdir: metrics, every prediction, accuracy by class."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import jax
import numpy as np

from vit_jax.evaluation import catalogue, examples, precision_recall
from vit_jax.evaluation.spec import Result
from vit_jax.process import text
from vit_jax.process import text as texts
from vit_jax.process.text import one_line, shown
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.paths import Path
from vit_jax.weights.card import parameters_in_words

METRICS = "metrics.json"
DATASET = "dataset"  # beside the metrics of a set: its images, in words


def write_details(
  folder: Path, scored: list[tuple[str, Result]], origin: dict[str, int | str]
) -> Path | None:
  """Writes metrics, tables, plots and pictures of an evaluation to a folder of its own.

  Args:
    folder: the workdir.
    scored: the results.
    origin: which parameters were scored, the first entries of each metrics.json.

  Returns:
    WORKDIR/evaluation/NUMBER, with a folder for each set; None if no set has details.

  Raises:
    OSError: the folder cannot be written to.
  """
  detailed = [(name, each) for name, each in scored if each.write or each.pictures]
  if not detailed:
    return None

  def fill(partial):
    for name, result in detailed:
      write_set(partial / name, result, origin)

  return workdir.write_details(folder, fill)


def write_set(folder: Path, result: Result, origin: dict[str, int | str]):
  """Writes the details of one set into a new folder; arguments as for `write_details`."""
  files.make_folder(folder)
  origin = origin | {DATASET: result.dataset}
  files.write_text(folder / METRICS, text.json_text(origin | result.metrics) + "\n")
  if result.write:
    result.write(folder)
  for name, picture in result.pictures.items():
    files.write_bytes(folder / f"{name}.png", examples.png(picture))


def notes(scored: list[tuple[str, Result]]) -> str:
  """The notes on the metrics, one line for each evaluation that has one."""
  return "".join("\n" + one_line(f"{name}: {each.note}") for name, each in scored if each.note)


def recorded(folder: Path) -> dict:
  """The metrics.json in the folder of a set, {} if it is not there.

  Raises:
    OSError, ValueError: it cannot be read.
  """
  path = folder / METRICS
  if not files.is_file(path):
    return {}
  try:
    return text.with_numbers(files.read_json(path, most=MAX_BYTES))
  except ValueError as error:
    raise ValueError(f"{path} does not hold metrics of an evaluation ({error})") from error


def whose(name: str, origin: Mapping[str, object]) -> str:
  """The name of a set, and `origin_in_words` if that is known."""
  return ": ".join(filter(None, [name, origin_in_words(origin)]))


def origin_in_words(origin: Mapping[str, object]) -> str:
  """Names the images and parameters behind metrics, such as "digits test, step 40"."""
  words = [str(origin.get(DATASET, ""))]
  words += [f"{key} {origin[key]}" for key in ("step", "weights") if key in origin]
  if origin.get(catalogue.AVERAGE) is True:
    words.append(parameters_in_words(True))
  return ", ".join(filter(None, words))


def steps_in(folder: Path) -> frozenset[int]:
  """The steps whose evaluation is already in metrics.jsonl, with all sets."""
  made = evaluations_in(folder)
  return frozenset(line["step"] for line in made if not metrics_log.unscored(line))


def unscored_in_words(lines: Sequence[Mapping]) -> list[str]:
  """A sentence for each set that could not be scored, by the lines of metrics.jsonl."""
  steps = collections.defaultdict(list)
  for line in lines:
    for name in metrics_log.unscored(line):
      steps[name].append(line["step"])
  return [
    f"Evaluation set {name!r} could not be scored {len(of)} time(s), last after step {of[-1]:,}."
    for name, of in steps.items()
  ]


def evaluations_in(folder: Path) -> list[dict]:
  """The lines of metrics.jsonl that hold metrics of an evaluation."""
  lines = metrics_log.read_lines(folder)
  names = {key for line in lines for key in line}
  keys = {key for key in names if catalogue.metric(key) is not None}
  return [line for line in lines if not keys.isdisjoint(line)]


PREDICTIONS = "predictions.csv"
CLASSES = "classes.csv"
CONFUSION = "confusion.csv"
COLUMNS = ("name", "label", "prediction", "probability")  # of PREDICTIONS
OF_CLASSES = (
  *("class", "images", "right", "accuracy"),
  *("predicted", "precision", "recall", "f1"),
)  # columns of CLASSES; earlier versions wrote the first four
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


def write_predictions(folder: Path, details: Details):
  """Writes predictions.csv, classes.csv and, for up to 2,000 classes, confusion.csv.

  Raises:
    OSError: the files cannot be written.
  """
  files.make_folder(folder)
  names = details.class_names
  files.write_csv(folder / PREDICTIONS, prediction_rows(details))
  files.write_csv(folder / CLASSES, class_rows(details))
  if len(names) <= MAX_CLASSES:
    matrix = confusion(details.labels, details.predictions, len(names))
    rows = ([name, *counts] for name, counts in zip(names, matrix.tolist(), strict=True))
    files.write_csv(folder / CONFUSION, [["label / prediction", *names], *rows])


def prediction_rows(details: Details) -> Iterable[list]:
  """A header, and a row for each image; nine digits distinguish all float32 numbers."""
  yield list(COLUMNS)
  columns = zip(details.labels, details.predictions, details.probabilities, strict=True)
  for row, (label, prediction, probability) in enumerate(columns):
    names = details.class_names[label], details.class_names[prediction]
    yield [details.name(row), *names, f"{probability:.9g}"]


def class_rows(details: Details) -> Iterable[list]:
  """A header, and a row for each class.

  The accuracy is empty for a class without images; precision, recall and F1 are empty for a class
  that is neither a label nor a prediction, and otherwise as `precision_recall.of_classes`.
  """
  yield list(OF_CLASSES)
  hits = details.labels[details.labels == details.predictions]
  counted = (details.labels, hits, details.predictions)
  counts = [np.bincount(each, minlength=len(details.class_names)) for each in counted]
  images, right, predicted = counts
  fractions = precision_recall.of_classes(images, predicted, right)
  columns = zip(details.class_names, *(each.tolist() for each in counts), fractions.T, strict=True)
  for name, n, r, p, (precision, recall, f1) in columns:
    accuracy = ""
    if n:
      accuracy = f"{recall:.6f}"
    others = [""] * 3
    if n or p:
      others = [f"{value:.6f}" for value in (precision, recall, f1)]
    yield [name, n, r, accuracy, p, *others]


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
  return names, np.array([list(map(count_of, row[1:])) for row in rows])


def rows_of(path: Path, *columns: int) -> list[list[str]]:
  """The rows of a CSV file below its header; [] if there is no file.

  Args:
    path: the file.
    *columns: numbers of columns that rows may have; none: one more than rows, as in a confusion
      matrix.

  Raises:
    OSError, ValueError, csv.Error: it cannot be read, or a row has another number of columns.
  """
  if not files.is_file(path):
    return []
  text = files.read_bytes(path, most=MAX_BYTES).decode()
  rows = list(texts.csv_rows(text))[1:]
  if any(len(row) not in (columns or (len(rows) + 1,)) for row in rows):
    raise ValueError(f"{path.name} has rows of different lengths")
  return rows


def count_of(text: str) -> int:
  """The number of images in a cell.

  Raises:
    ValueError: the text is not such a number.
  """
  number = int(text)
  if not 0 <= number <= MAX_IMAGES:
    raise ValueError(f"{shown(text)} is no number of images")
  return number
