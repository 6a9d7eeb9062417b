"""Draws the curves and the confusion matrix of a run."""

import pathlib
import warnings
from collections.abc import Callable

import numpy as np

from vit_jax.plots.labels import label
from vit_jax.storage import files, metrics_log

CURVES = "curves.png"
CONFUSION = "confusion.png"
_MOST_NAMES = 60  # class names along an axis; more would not be readable


def curves(folder: pathlib.Path, plot_of: Callable[[str], str]):
  """Draws WORKDIR/curves.png from metrics.jsonl: loss, accuracy and learning rate against step.

  Args:
    folder: the workdir.
    plot_of: (key of a figure of an evaluation) -> "loss", "accuracy", or "" for neither.
  """
  from matplotlib.figure import Figure  # slow to import, and only needed at the end of a run

  lines = metrics_log.read(folder)
  figure = Figure(figsize=(8, 9))
  figure.subplots_adjust(left=0.12, right=0.97, bottom=0.06, top=0.98, hspace=0.08)
  loss, accuracy, rate = figure.subplots(3, sharex=True)
  series = {
    key: [(line["step"], line[key]) for line in lines if isinstance(line.get(key), float)]
    for key in sorted({key for line in lines for key in line})
  }
  for key, points in series.items():
    if key == "loss":
      loss.plot(*zip(*points, strict=True), label="training")
    if key == "learning_rate":
      rate.plot(*zip(*points, strict=True))
    if plot_of(key) == "loss":
      loss.plot(*zip(*points, strict=True), marker=".", label=key.removesuffix("/loss"))
    if plot_of(key) == "accuracy":
      accuracy.plot(*zip(*points, strict=True), marker=".", label=key)
  loss.set(ylabel="loss", yscale="log")
  accuracy.set(ylabel="accuracy")
  rate.set(ylabel="learning rate", xlabel="step")
  for axes in (loss, accuracy):
    if axes.get_legend_handles_labels()[0]:
      axes.legend()
  for axes in (loss, accuracy, rate):
    axes.grid(alpha=0.3)
  save(figure, folder / CURVES)


def confusion(folder: pathlib.Path, matrix, class_names):
  """Draws FOLDER/confusion.png: the share of each class's images that got each prediction."""
  from matplotlib.figure import Figure

  count = len(class_names)
  named = count <= _MOST_NAMES
  side = min(4 + 0.22 * count, 16) if named else 10
  figure = Figure(figsize=(side + 1, side), layout="constrained")
  axes = figure.subplots()
  share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
  image = axes.imshow(share, vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
  figure.colorbar(image, label="share of the class's images")
  axes.set(xlabel="prediction", ylabel="label")
  if named:
    names = [label(name) for name in class_names]
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
  save(figure, folder / CONFUSION)


def save(figure, path: pathlib.Path):
  """Writes a figure of Matplotlib as PNG, or as SVG if the path ends so."""
  form = path.suffix.removeprefix(".")
  with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes
    warnings.filterwarnings("ignore", "Glyph .* missing from")
    files.write_whole(path, lambda partial: figure.savefig(partial, format=form, dpi=120))
