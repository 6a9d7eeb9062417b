"""Draws the results of a study from the rows of results.csv or curves.csv alone."""

import math
import re
import statistics

from vit_jax.extras.experiments.studies.results import deviation
from vit_jax.extras.experiments.studies.study import EPOCH, Drawing
from vit_jax.extras.plots import charts
from vit_jax.extras.plots.labels import drawable
from vit_jax.process.text import one_line
from vit_jax.storage.paths import Path

PAPER = "score in the paper"  # results.md says what was measured
MAX_TEXT = 40  # characters of a value
NAMES = {  # labels of columns whose names are not words separated by "_"
  "positions": "position embedding",
  "position_place": "added at",
  "exaflops": "exaFLOPs",
  "pretraining_exaflops": "exaFLOPs of pre-training",
  "pixels": "image size (pixels)",
}
MARKERS = "os^Dv*P"  # the next one each time the ten colours start again
COLUMN = 15  # lines per column of a legend


def draw(rows: list[dict[str, str]], drawing: Drawing, paths: list[Path], *, percent: bool = False):
  """Draws means with deviations as error bars, and the paper's scores in panels next to them.

  Cells without a value on an axis, such as exaFLOPs that are not known, are left out of its panels.

  Args:
    rows: the rows of results.csv or curves.csv, as text.
    drawing: which columns are drawn.
    paths: files to write; the ending gives the format.
    percent: whether scores are accuracies, fractions of 1.
  """
  from matplotlib.figure import Figure  # slow to import, and only needed at the end
  from matplotlib.ticker import PercentFormatter

  sources = {"score": ""}
  if any(row["paper"] for row in rows):
    sources = {"score": "here", "paper": "paper"}
  columns = [(x, value) for value in sources for x in drawing.along()]
  by_panel = {"": rows}
  if drawing.panel:
    by_panel = groups(rows, drawing.panel)
  width = 4 + beside(rows, drawing)
  height = 3.6 + below(rows, drawing)
  size = (0.8 + width * len(columns), height * len(by_panel))
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(len(by_panel), len(columns), squeeze=False)
  for line, (name, some) in zip(grid, by_panel.items(), strict=True):
    for axes, (x, value) in zip(line, columns, strict=True):
      panel(axes, [row for row in placed(some, x) if row[value]], drawing, x, value)
      if percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1))
      axes.set_title(", ".join(filter(None, [as_text(name), sources[value]])))
  for path in paths:
    charts.save(figure, path)


def panel(axes, rows: list[dict[str, str]], drawing: Drawing, x: str, value: str):
  """One panel: the column `value` against the column `x`, a curve for each of `drawing.by`."""
  places = numbers([row[x] for row in rows])
  names = curve_names(rows, drawing)
  ordered = all(map(is_number, places))  # else a line has no meaning
  step = 0.0
  if not ordered:
    step = min(0.1, 0.8 / len(names))
  lines = []
  for number, name in enumerate(names):
    shift = step * (number - (len(names) - 1) / 2)
    some = [row for row in rows if curve_of(row, drawing) == name]
    across, means, deviations = zip(*points(some, x, value, places), strict=True)
    joined = ordered and len(set(across)) == len(across)  # else a line would join unlike cells
    line = axes.errorbar(
      [place + shift for place in across],
      means,
      deviations,
      marker=MARKERS[number // 10 % len(MARKERS)],
      linestyle="-" if joined else "none",
      capsize=3,
    )
    lines.append(line)
  if not ordered:
    turned = {}
    if is_long(places):
      turned["rotation"] = 90
    axes.set_xticks(list(places.values()), list(map(as_text, places)), **turned)
    axes.set_xlim(-0.5, len(places) - 0.5)
  label = drawing.label if value == "score" else PAPER
  axes.set(xlabel=name_of(x), ylabel=label)
  if drawing.log and ordered and all(place > 0 for place in places.values()):
    axes.set_xscale("log")
    charts.round_log_ticks(axes.xaxis)
  axes.grid(alpha=0.3)
  if any(names):
    legend(axes, lines, names, drawing)


def legend(axes, lines: list, names: list[str], drawing: Drawing):
  """The names of the curves, beside the panel."""
  # Names are given, since Matplotlib leaves out a curve whose own name is empty or begins with _.
  axes.legend(
    lines,
    list(map(as_text, names)),
    title=name_of(drawing.by or "cell"),
    ncols=-(-len(names) // COLUMN),
    loc="upper left",
    bbox_to_anchor=(1, 1),
  )


def placed(rows: list[dict[str, str]], x: str) -> list[dict[str, str]]:
  """The rows that have a value in the column `x`."""
  return [row for row in rows if row[x]]


def curve_of(row: dict[str, str], drawing: Drawing) -> str:
  """The name of the curve that a row belongs to; "" if there is one curve."""
  if drawing.by:
    return row[drawing.by]
  if drawing.x == EPOCH:
    return row["cell"]
  return ""


def curve_names(rows: list[dict[str, str]], drawing: Drawing) -> list[str]:
  """The names of the curves, each once."""
  return list(dict.fromkeys(curve_of(row, drawing) for row in rows))


def beside(rows: list[dict[str, str]], drawing: Drawing) -> float:
  """Inches for the legend beside a panel."""
  names = curve_names(rows, drawing)
  longest = max(len(as_text(name)) for name in names)
  if not any(names):
    return 0.0
  return (0.7 + 0.09 * longest) * -(-len(names) // COLUMN)


def below(rows: list[dict[str, str]], drawing: Drawing) -> float:
  """Inches for values that are written upwards below a panel."""
  columns = [numbers([row[x] for row in placed(rows, x)]) for x in drawing.along()]
  turned = [places for places in columns if not all(map(is_number, places)) and is_long(places)]
  return max((0.09 * len(as_text(name)) for places in turned for name in places), default=0.0)


def is_long(places: dict[str, float]) -> bool:
  """Whether the values do not fit below a panel side by side."""
  return sum(len(as_text(name)) + 2 for name in places) > 60


def name_of(column: str) -> str:
  """The name of a column in words."""
  return as_text(NAMES.get(column, column))


def as_text(value: str) -> str:
  """A value as text for a figure: words on one line, the middle of a long one left out, no TeX."""
  text = re.sub(r"(?<=\w)_(?=\w)", " ", drawable(one_line(value)))
  if len(text) > MAX_TEXT:
    text = f"{text[:20]}...{text[-17:]}"
  return text.replace("$", r"\$")


def points(
  rows: list[dict[str, str]], x: str, value: str, places: dict[str, float]
) -> list[tuple[float, float, float]]:
  """(place, mean, deviation) of each cell, in the order of the places.

  A measured column, such as the seconds, differs between seeds: its mean is the place. In curves,
  each epoch is a point.
  """
  of_points = list(groups(rows, "cell").values())
  if x == EPOCH:
    of_points = [some for cell in of_points for some in groups(cell, x).values()]
  drawn = []
  for some in of_points:
    texts = [row[value] for row in some]
    if value != "score":
      texts = texts[:1]  # the paper's score is the same for all seeds
    scores = list(map(float, texts))
    place = statistics.mean(places[row[x]] for row in some)
    spread = deviation(scores) or 0.0  # the error bar of one value is invisible
    drawn.append((place, statistics.fmean(scores), spread))
  return sorted(drawn)


def groups(rows: list[dict[str, str]], column: str) -> dict[str, list[dict[str, str]]]:
  """The rows by the value of a column; numbers in ascending order."""
  by_value = {}
  for row in rows:
    by_value.setdefault(row[column], []).append(row)
  places = numbers(list(by_value))
  return {value: by_value[value] for value in sorted(by_value, key=places.__getitem__)}


def numbers(values: list[str]) -> dict[str, float]:
  """The place of each value on the axis: itself if all are numbers, else 0, 1, ..."""
  different = list(dict.fromkeys(values))
  if all(map(is_number, different)):
    return {value: float(value) for value in different}
  return {value: float(place) for place, value in enumerate(different)}


def is_number(text: str) -> bool:
  """Whether a text is a number that has a place on an axis."""
  try:
    return math.isfinite(float(text))
  except ValueError:
    return False
