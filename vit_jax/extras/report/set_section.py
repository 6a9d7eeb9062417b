"""The details of an evaluation: classes, confusions, calibration, worst mistakes."""

import dataclasses
from collections import Counter

import numpy as np

from vit_jax.evaluation import examples
from vit_jax.evaluation.details import BINS
from vit_jax.extras.plots import charts
from vit_jax.extras.report.document import Picture, Section, Table, TableCell, count, percent
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.extras.report.thumbnails import MAX_BYTES, png, thumbnails
from vit_jax.process.text import listed
from vit_jax.storage.files import read_bytes

MAX_ROWS = 40  # classes in the table of classes
MAX_CELLS = 20  # classes in the table of confusions; of more there is a picture
SHOWN = 10  # confusions


def section(scored: ScoredSet, before: str) -> Section:
  """The section of a set; `before` begins its title.

  The title, and each table and picture, says which images and which parameters it is of.
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
    sections=[named(part, scored.whose) for part in sections],
  )


def named(section: Section, whose: str) -> Section:
  """The section with what it is of in the captions of its tables and larger pictures."""
  with_words = lambda part: dataclasses.replace(part, caption=f"{part.caption} ({whose})")
  return dataclasses.replace(
    section,
    tables=list(map(with_words, section.tables)),
    pictures=[each if each.small else with_words(each) for each in section.pictures],
  )


def classes(scored: ScoredSet) -> Table:
  """The accuracy of each class, the lowest first; of many classes, the lowest and the highest."""
  known = sorted((row for row in scored.classes if row[1]), key=lambda row: row[2] / row[1])
  caption = f"Accuracy of {len(known):,} class{'es' * (len(known) != 1)}, the lowest first"
  if len(known) > MAX_ROWS:
    known = [*known[: MAX_ROWS // 2], *known[-MAX_ROWS // 2 :]]
    caption = f"{caption}: the {MAX_ROWS // 2} lowest and the {MAX_ROWS // 2} highest"
  rows = [(name, [share(right, n), count(n)]) for name, n, right in known]
  return Table(caption, ["class", "accuracy", "images"], rows)


def share(part: int, whole: int) -> TableCell:
  """A share as a cell that its value colours."""
  return TableCell(f"{part / whole:.1%}", part / whole, part / whole)


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
  picture = Picture(
    charts.matrix(matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)),
    "svg+xml",
    "The confusion matrix: the lighter the diagonal, the more images of a class are right. The "
    "table below names the most frequent confusions.",
    "Share of each class's images (rows) that got each prediction (columns); classes in the order "
    "of classes.csv",
  )
  return Section("Confusions", tables=[often], pictures=[picture])


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
  """Whether probabilities are as high as accuracies, in bins of equal width."""
  known = np.isfinite(scored.probabilities)  # a diverged run predicts with a probability of NaN
  if not known.any():
    return Section("Calibration")
  probabilities = scored.probabilities[known]
  hits = (scored.labels == scored.predictions)[known].astype(float)
  bins = np.clip(np.ceil(probabilities * BINS), 1, BINS).astype(int) - 1
  images = np.bincount(bins, minlength=BINS)
  used = np.flatnonzero(images)
  mean = lambda values: np.bincount(bins, values, BINS)[used] / images[used]
  probability, accuracy = mean(probabilities), mean(hits)
  rows = [
    (
      f"{k / BINS:.0%} to {(k + 1) / BINS:.0%}",
      [percent(p), percent(a), count(n)],
    )
    for k, p, a, n in zip(used, probability, accuracy, images[used], strict=True)
  ]
  table = Table(
    "Calibration in bins of probability",
    ["probability", "mean probability", "accuracy", "images"],
    rows,
    folded=True,
  )
  error = scored.metrics.get("ece")
  error_in_words = f" Expected calibration error: {error:.2%}." if isinstance(error, float) else ""
  picture = Picture(
    charts.calibration(probability, accuracy, images[used]),
    "svg+xml",
    "Accuracy by probability; the table below has the numbers.",
    "Accuracy by probability of the prediction. Dots on the dotted line are well calibrated; "
    f"larger dots stand for more images.{error_in_words}",
  )
  return Section("Calibration", tables=[table], pictures=[picture])


def mistakes(scored: ScoredSet) -> Section:
  """The wrong predictions with the highest probability, as pictures where the run kept them."""
  worst = examples.worst(scored.labels, scored.predictions, scored.probabilities)
  label, prediction, name = scored.labels, scored.predictions, scored.names
  captions = {
    row: f"{label[row]}, taken for {prediction[row]} ({scored.probabilities[row]:.1%})"
    for row in worst
  }
  rows = [
    (name[row], [label[row], prediction[row], percent(scored.probabilities[row])]) for row in worst
  ]
  table = Table(
    "Wrong predictions with the highest probability",
    ["image", "label", "prediction", "probability"],
    rows,
    folded=True,
  )
  alt = lambda caption: f"A test image of {caption}."
  return Section(
    "Worst mistakes", tables=[table], pictures=thumbnails(scored.images, captions, alt)
  )


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
