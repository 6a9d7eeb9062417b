"""The details of an evaluation: classes, confusions, calibration, worst mistakes."""

import dataclasses
from collections import Counter

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.evaluation.results import BINS
from vit_jax.extras.plots import charts
from vit_jax.extras.report.document import Picture, Section, Table, TableCell, count, percent
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.extras.report.thumbnails import MAX_BYTES, png, thumbnails
from vit_jax.process.text import listed
from vit_jax.storage.files import read_bytes

MAX_ROWS = 40  # classes in the table of classes
MAX_CELLS = 20  # classes in the table of confusions; more classes get a picture
SHOWN = 10  # confusions


def section(scored: ScoredSet, before: str) -> Section:
  """The section of a set; `before` begins its title.

  The title, and the caption of each table and picture, name the images and the parameters.
  """
  images = len(scored.labels)
  missing = [name for name, images, _ in scored.classes if not images]
  sections = [
    mistakes(scored),
    Section("Accuracy of each class", tables=[classes(scored)]),
    confusion(scored),
    calibration(scored),
    Section("Pictures", pictures=drawn_pictures(scored)),
  ]
  return Section(
    f"{before}{scored.whose}",
    words=[
      scored.score or f"On {images:,} image{'s' * (images != 1)}.",
      *[f"No image of: {listed(missing)}."] * bool(missing),
    ],
    sections=[named(each, scored.whose) for each in sections],
  )


def named(section: Section, whose: str) -> Section:
  """The section with `whose` added to the captions of its tables and larger pictures."""

  def add(captioned: Table | Picture) -> Table | Picture:
    if isinstance(captioned, Picture) and captioned.small:
      return captioned
    return dataclasses.replace(captioned, caption=f"{captioned.caption} ({whose})")

  tables = list(map(add, section.tables))
  return dataclasses.replace(section, tables=tables, pictures=list(map(add, section.pictures)))


def classes(scored: ScoredSet) -> Table:
  """The accuracy of each class, lowest first; if there are many, the lowest and the highest."""
  known = sorted((row for row in scored.classes if row[1]), key=lambda row: row[2] / row[1])
  caption = f"Accuracy of {len(known):,} class{'es' * (len(known) != 1)}, the lowest first"
  if len(known) > MAX_ROWS:
    known = [*known[: MAX_ROWS // 2], *known[-MAX_ROWS // 2 :]]
    caption = f"{caption}: the {MAX_ROWS // 2} lowest and the {MAX_ROWS // 2} highest"
  rows = [(name, [share(right, n), count(n)]) for name, n, right in known]
  return Table(caption, ["class", "accuracy", "images"], rows)


def share(part: int, whole: int) -> TableCell:
  """A cell with a fraction in percent, coloured by its value."""
  fraction = part / whole
  return TableCell(f"{fraction:.1%}", fraction, fraction)


def confusion(scored: ScoredSet) -> Section:
  """The confusion matrix, as a table or a picture, and the most frequent confusions."""
  wrong = scored.labels != scored.predictions
  pairs = Counter(zip(scored.labels[wrong], scored.predictions[wrong], strict=True))
  rows = [(label, [prediction, count(n)]) for (label, prediction), n in pairs.most_common(SHOWN)]
  caption = f"The most frequent confusions, up to {SHOWN}"
  often = Table(caption, ["label", "prediction", "images"], rows)
  matrix = scored.confusion
  if matrix is None or len(matrix) != len(scored.classes):
    return Section("Confusions", tables=[often])
  if len(matrix) <= MAX_CELLS:
    return Section("Confusions", tables=[matrix_table(scored), often])
  return Section("Confusions", tables=[often], pictures=[matrix_picture(matrix)])


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
  known = np.isfinite(scored.probabilities)  # the probabilities of a diverged run are NaN
  if not known.any():
    return Section("Calibration")
  probabilities = scored.probabilities[known]
  hits = (scored.labels == scored.predictions)[known].astype(float)
  bins = np.clip(np.ceil(probabilities * BINS), 1, BINS).astype(int) - 1
  images = np.bincount(bins, minlength=BINS)
  used = np.flatnonzero(images)
  counts = images[used]
  probability = np.bincount(bins, probabilities, BINS)[used] / counts
  accuracy = np.bincount(bins, hits, BINS)[used] / counts
  rows = [
    (f"{k / BINS:.0%} to {(k + 1) / BINS:.0%}", [percent(p), percent(a), count(n)])
    for k, p, a, n in zip(used, probability, accuracy, counts, strict=True)
  ]
  table = Table(
    "Calibration in bins of probability",
    ["probability", "mean probability", "accuracy", "images"],
    rows,
    folded=True,
  )
  caption = (
    "Accuracy by probability of the prediction. Dots on the dotted line are well calibrated; "
    "larger dots stand for more images."
  )
  error = scored.metrics.get("ece")
  if isinstance(error, float):
    caption += f" Expected calibration error: {error:.2%}."
  picture = Picture(
    charts.calibration(probability, accuracy, counts),
    "svg+xml",
    "Accuracy by probability; the table below has the numbers.",
    caption,
  )
  return Section("Calibration", tables=[table], pictures=[picture])


def mistakes(scored: ScoredSet) -> Section:
  """The wrong predictions with the highest probability, with the images that the run kept."""
  captions = {}
  rows = []
  for row in examples.worst(scored.labels, scored.predictions, scored.probabilities):
    label = scored.labels[row]
    prediction = scored.predictions[row]
    probability = scored.probabilities[row]
    captions[row] = f"{label}, taken for {prediction} ({probability:.1%})"
    rows.append((scored.names[row], [label, prediction, percent(probability)]))
  table = Table(
    "Wrong predictions with the highest probability",
    ["image", "label", "prediction", "probability"],
    rows,
    folded=True,
  )
  pictures = thumbnails(scored.images, captions, "A test image of {}.".format)
  return Section("Worst mistakes", tables=[table], pictures=pictures)


def drawn_pictures(scored: ScoredSet) -> list[Picture]:
  """The pictures that the evaluation itself drew."""
  return [
    Picture(
      read_bytes(path, most=MAX_BYTES),
      "png",
      f"{name} of {scored.name}, drawn by the evaluation.",
      f"{scored.name}: {name}",
    )
    for name, path in scored.pictures.items()
    if png(path)
  ]
