"""Draws the curves and the confusion matrix of a run."""

import contextlib
import csv
from collections.abc import Callable

import numpy as np

from vit_jax.evaluation import results
from vit_jax.extras.plots import charts
from vit_jax.extras.plots.labels import caption, label, metric
from vit_jax.storage import files, metrics_log
from vit_jax.storage import workdir as workdirs
from vit_jax.storage.paths import Path

CURVES = "curves.png"
CONFUSION = "confusion.png"
_MAX_NAMES = 60  # class names along an axis; more would not be readable
_MAX_COUNTS = 20  # with more classes, the cells have no room for a number

TRAINING = dict(label="training", color="tab:purple")
OF_ONE_BATCH = dict(color="grey", alpha=0.3, linewidth=0.8)
OF_TRAINING = {  # metric: (row of the figure, how the line looks)
  "loss": (0, TRAINING),
  "batch/loss": (0, OF_ONE_BATCH),
  metrics_log.ACCURACY: (1, TRAINING),
  "batch/accuracy": (1, OF_ONE_BATCH),
  "learning_rate": (2, {}),
}
CONSTANT = 0.01  # a top-5 accuracy that changes less is not drawn


def curves(folder: Path, plot_of: Callable[[str], str]):
  """Draws WORKDIR/curves.png from metrics.jsonl: loss, accuracy and learning rate against step.

  Args:
    folder: the workdir.
    plot_of: (key of an evaluation's metric) -> "loss", "accuracy", or "" for neither.
  """
  from matplotlib.figure import Figure  # slow to import, and only needed at the end of a run
  from matplotlib.ticker import PercentFormatter

  lines = metrics_log.read_lines(folder)
  figure = Figure(figsize=(5, 7.5), layout="constrained")
  loss, accuracy, rate = figure.subplots(3, sharex=True)
  series = {
    key: [(line["step"], line[key]) for line in lines if isinstance(line.get(key), float)]
    for key in sorted({key for line in lines for key in line})
  }
  averaged = {key for line in lines if line.get("average") for key in line}
  for key, points in series.items():
    whose = " (moving average)" if key in averaged else ""
    steps_and_values = list(zip(*points, strict=True))
    if key in OF_TRAINING:
      row, style = OF_TRAINING[key]
      figure.axes[row].plot(*steps_and_values, **style)
    if plot_of(key) == "loss":
      loss.plot(*steps_and_values, marker=".", label=key.removesuffix("/loss") + whose)
    if plot_of(key) == "accuracy":
      _accuracy(accuracy, key, points, whose)
  loss.set(ylabel="loss", yscale="log")
  charts.round_log_ticks(loss.yaxis)
  accuracy.set(ylabel="accuracy")
  accuracy.yaxis.set_major_formatter(PercentFormatter(1))
  rate.set(ylabel="learning rate", xlabel="step")
  rate.yaxis.set_major_formatter("{x:g}")
  for axes in (loss, accuracy):
    charts.legend_above(axes)
  for axes in (loss, accuracy, rate):
    axes.grid(alpha=0.3)
  figure.align_ylabels()
  charts.save(figure, folder / CURVES)


def _accuracy(axes, key: str, points: list[tuple[int, float]], whose: str = ""):
  """A line of accuracies; a constant top-5 is only named, as it would squeeze the other lines."""
  values = [value for _, value in points]
  if key.endswith("/top5") and max(values) - min(values) < CONSTANT:
    axes.plot([], [], " ", label=f"{metric(key)}{whose}: {values[-1]:.1%}, not drawn")
  else:
    axes.plot(*zip(*points, strict=True), marker=".", label=metric(key) + whose)


def confusions(workdir: Path):
  """Draws the confusion matrices of a workdir that are not drawn yet; skips damaged ones."""
  for folder in workdirs.details(workdir):
    if files.is_file(folder / results.CONFUSION) and not files.exists(folder / CONFUSION):
      with contextlib.suppress(ValueError, csv.Error):
        names, matrix = results.read_confusion(folder)
        confusion(folder, matrix, names, results.whose(folder.name, results.recorded(folder)))


def confusion(folder: Path, matrix, class_names, whose: str):
  """Draws FOLDER/confusion.png: images by label and prediction, coloured by the label's share.

  `whose` is the title: it names the images and the parameters.
  """
  from matplotlib.figure import Figure
  from matplotlib.ticker import PercentFormatter

  count = len(class_names)
  named = count <= _MAX_NAMES
  counted = count <= _MAX_COUNTS
  side = 6
  names = []
  if named:
    inches_of_class = 0.32 if counted else 0.22
    side = min(2.2 + inches_of_class * count, 16)
    names = [label(name) for name in class_names]
  beside = 0.09 * max(map(len, names), default=0)  # inches that the names take
  figure = Figure(figsize=(side + 0.8 + beside, side + beside), layout="constrained")
  axes = figure.subplots()
  share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
  image = axes.imshow(share, vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
  share_of = "share of the label's images"
  figure.colorbar(image, label=share_of, format=PercentFormatter(1), shrink=0.8)
  axes.set(xlabel="prediction", ylabel="label")
  if counted:
    _write_counts(axes, matrix, share)
  figure.suptitle(caption(whose, round(11 * (side + beside))), fontsize=9)
  if named:
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
  charts.save(figure, folder / CONFUSION)


def _write_counts(axes, matrix, share):
  """Writes the number of images into each cell, readable on the colour of its share."""
  for (row, column), images in np.ndenumerate(matrix):
    colour = "lightgrey"
    if share[row, column] > 0.5:
      colour = "white"
    elif images:
      colour = "black"
    axes.text(column, row, f"{images:.0f}", ha="center", va="center", size=9, color=colour)
