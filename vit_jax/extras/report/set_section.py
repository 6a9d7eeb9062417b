"""The details of an evaluation: classes, confusions, calibration, worst mistakes."""

from collections import Counter

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.evaluation.results import BINS
from vit_jax.extras.plots import charts
from vit_jax.extras.report.document import Picture, Section, Table, TableCell, count, percent
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.extras.report.thumbnails import MAX_BYTES, png
from vit_jax.process.text import listed
from vit_jax.storage.files import read_bytes

MAX_ROWS = 40  # classes in the table of classes
MAX_CELLS = 20  # classes in the table of confusions; more classes get a picture
SHOWN = 10  # confusions


def section(scored: ScoredSet, title: str) -> Section:
  """The section of a set; its first words name the images and the parameters."""
  images = len(scored.labels)
  missing = [name for name, images, _ in scored.classes if not images]
  score = scored.score or f"on {images:,} image{'s' * (images != 1)}"
  return Section(
    title,
    words=[f"{scored.origin}. {score}", *[f"No image of: {listed(missing)}."] * bool(missing)],
    sections=[
      confusion(scored),
      Section("Accuracy of each class", tables=[classes(scored)]),
      Section("Worst mistakes", tables=[mistakes(scored)]),
      calibration(scored),
      Section("Pictures", pictures=drawn_pictures(scored)),
    ],
  )


def classes(scored: ScoredSet) -> Table:
  """The accuracy of each class, lowest first; if there are many, the lowest and the highest."""
  known = sorted((row for row in scored.classes if row[1]), key=lambda row: row[2] / row[1])
  caption = f"Accuracy of {len(known):,} class{'es' * (len(known) != 1)}, the lowest first"
  if len(known) > MAX_ROWS:
    known = [*known[: MAX_ROWS // 2], *known[-MAX_ROWS // 2 :]]
    caption = f"{caption}: the {MAX_ROWS // 2} lowest and the {MAX_ROWS // 2} highest"
  rows = [(name, [share(right, n), count(n)]) for name, n, right in known]
  return Table(caption, ["class", "accuracy, %", "images"], rows)


def share(part: int, whole: int) -> TableCell:
  """A cell with a fraction in percent, coloured by its value."""
  fraction = part / whole
  return TableCell(f"{100 * fraction:.1f}", fraction, fraction)


def confusion(scored: ScoredSet) -> Section:
  """The confusion matrix as a table; of many classes as a picture, with the frequent confusions."""
  matrix = scored.confusion
  if matrix is not None and len(matrix) == len(scored.classes):
    if len(matrix) <= MAX_CELLS:
      return Section("Confusions", tables=[matrix_table(scored)])
    return Section("Confusions", tables=[often(scored)], pictures=[matrix_picture(matrix)])
  return Section("Confusions", tables=[often(scored)])


def often(scored: ScoredSet) -> Table:
  """The most frequent confusions."""
  wrong = scored.labels != scored.predictions
  pairs = Counter(zip(scored.labels[wrong], scored.predictions[wrong], strict=True))
  rows = [(label, [prediction, count(n)]) for (label, prediction), n in pairs.most_common(SHOWN)]
  caption = f"The most frequent confusions, up to {SHOWN}"
  return Table(caption, ["label", "prediction", "images"], rows)


def matrix_picture(matrix: np.ndarray) -> Picture:
  """The confusion matrix as a picture: each row is divided by its sum."""
  return Picture(
    charts.matrix(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)),
    "svg+xml",
    "The confusion matrix: the lighter the diagonal, the more images of a class are right. The "
    "table below names the most frequent confusions.",
    "Share of each class's images (rows) that got each prediction (columns); classes in the order "
    "of classes.csv",
  )


def matrix_table(scored: ScoredSet) -> Table:
  """The confusion matrix as a table: a row for each label, a column for each prediction."""
  names = [name for name, _, _ in scored.classes]
  sums = np.maximum(scored.confusion.sum(axis=1), 1).tolist()
  rows = [
    (name, [TableCell(f"{n:,}", n, n / total) for n in row])
    for name, row, total in zip(names, scored.confusion.tolist(), sums, strict=True)
  ]
  return Table("Images of each label (rows) by prediction (columns)", ["label", *names], rows)


def calibration(scored: ScoredSet) -> Section:
  """Compares probabilities with accuracies, in bins of equal width."""
  probability, accuracy, images = bins(scored)
  if not len(images):
    return Section("Calibration")
  caption = (
    "Accuracy by probability of the prediction. Dots on the dotted line are well calibrated; "
    "larger dots stand for more images."
  )
  error = scored.metrics.get("ece")
  if isinstance(error, float):
    caption += f" Expected calibration error: {error:.2%}."
  shown = "; ".join(
    f"{p:.1%}: {a:.1%} of {n:,}" for p, a, n in zip(probability, accuracy, images, strict=True)
  )
  alt = f"Accuracy by mean probability of the predictions in a bin: {shown} images."
  picture = Picture(charts.calibration(probability, accuracy, images), "svg+xml", alt, caption)
  return Section("Calibration", pictures=[picture])


def bins(scored: ScoredSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Mean probability, accuracy and number of images of each bin with images, (M,) each."""
  known = np.isfinite(scored.probabilities)  # the probabilities of a diverged run are NaN
  probabilities = scored.probabilities[known]
  hits = (scored.labels == scored.predictions)[known].astype(float)
  place = np.clip(np.ceil(probabilities * BINS), 1, BINS).astype(int) - 1
  images = np.bincount(place, minlength=BINS)
  used = np.flatnonzero(images)
  counts = images[used]
  probability = np.bincount(place, probabilities, BINS)[used] / counts
  return probability, np.bincount(place, hits, BINS)[used] / counts, counts


def mistakes(scored: ScoredSet) -> Table:
  """The wrong predictions with the highest probability, with the names of their images."""
  rows = [
    (
      scored.names[row],
      [scored.labels[row], scored.predictions[row], percent(scored.probabilities[row])],
    )
    for row in examples.worst(scored.labels, scored.predictions, scored.probabilities)
  ]
  return Table(
    "Wrong predictions with the highest probability",
    ["image", "label", "prediction", "probability, %"],
    rows,
  )


def drawn_pictures(scored: ScoredSet) -> list[Picture]:
  """The pictures that the evaluation itself drew."""
  return [
    Picture(
      read_bytes(path, most=MAX_BYTES),
      "png",
      f"{name} of {scored.name}, drawn by the evaluation.",
      name,
    )
    for name, path in scored.pictures.items()
    if png(path)
  ]
