"""Draws the results of a study from the rows of results.csv or curves.csv alone."""

import pathlib
import statistics

from vit_jax.experiments.studies.study import EPOCH, Drawing
from vit_jax.plots import curves

PAPER = "score in the paper"  # what it is of stands in results.md


def draw(rows: list[dict[str, str]], drawing: Drawing, paths: list[pathlib.Path]):
  """Draws means with deviations as error bars; the paper's figures are beside them.

  Args:
    rows: of results.csv or curves.csv, as text.
    drawing: which columns are drawn.
    paths: files to write; the ending tells the format.
  """
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  values = ["score"] + ["paper"] * any(row["paper"] for row in rows)
  columns = [(x, value) for value in values for x in drawing.along()]
  parts = groups(rows, drawing.panel) if drawing.panel else {"": rows}
  size = (1 + 5 * len(columns), 4 * len(parts))
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(len(parts), len(columns), squeeze=False)
  for line, (name, part) in zip(grid, parts.items(), strict=True):
    for axes, (x, value) in zip(line, columns, strict=True):
      panel(axes, [row for row in part if row[value]], drawing, x, value)
      axes.set_title(", ".join(filter(None, [name, "here" if value == "score" else "paper"])))
  for path in paths:
    curves.save(figure, path)


def panel(axes, rows: list[dict[str, str]], drawing: Drawing, x: str, value: str):
  """One panel: the column `value` against the column `x`, a curve for each of `drawing.by`."""
  places = numbers([row[x] for row in rows])
  names = list(dict.fromkeys(row[drawing.by] if drawing.by else "" for row in rows))
  ordered = all(map(is_number, places))  # else a line has no meaning
  for number, name in enumerate(names):
    shift = 0.0 if ordered else 0.1 * (number - (len(names) - 1) / 2)
    some = [row for row in rows if not drawing.by or row[drawing.by] == name]
    across, means, deviations = zip(*points(some, x, value, places), strict=True)
    axes.errorbar(
      [place + shift for place in across],
      means,
      deviations,
      marker="o",
      linestyle="-" if ordered else "none",
      capsize=3,
      label=name,
    )
  if not ordered:
    axes.set_xticks(list(places.values()), list(places))
  axes.set(xlabel=x, ylabel=drawing.label if value == "score" else PAPER)
  if drawing.log:
    axes.set_xscale("log")
  axes.grid(alpha=0.3)
  if drawing.by and rows:
    axes.legend(title=drawing.by)


def points(
  rows: list[dict[str, str]], x: str, value: str, places: dict[str, float]
) -> list[tuple[float, float, float]]:
  """(place, mean, deviation) of each cell, in the order of the places.

  A column that is measured, such as the seconds, differs between seeds: its mean is the place. Of
  curves, each epoch is a point.
  """
  found, cells = [], groups(rows, "cell").values()
  for some in [one for cell in cells for one in groups(cell, x).values()] if x == EPOCH else cells:
    texts = [row[value] for row in some]
    known = texts if value == "score" else texts[:1]  # the paper's is the same for all seeds
    mean = statistics.fmean(map(float, known))
    found.append((statistics.mean(places[row[x]] for row in some), mean, deviation(known)))
  return sorted(found)


def groups(rows: list[dict[str, str]], column: str) -> dict[str, list[dict[str, str]]]:
  """The rows by the value of a column; numbers in ascending order."""
  found = {}
  for row in rows:
    found.setdefault(row[column], []).append(row)
  places = numbers(list(found))
  return {value: found[value] for value in sorted(found, key=places.__getitem__)}


def numbers(values: list[str]) -> dict[str, float]:
  """The place of each value on the axis: itself if all are numbers, else 0, 1, ..."""
  different = list(dict.fromkeys(values))
  if all(map(is_number, different)):
    return {value: float(value) for value in different}
  return {value: float(place) for place, value in enumerate(different)}


def is_number(text: str) -> bool:
  """Whether a text is a number."""
  try:
    float(text)
  except ValueError:
    return False
  return True


def deviation(values: list[str]) -> float:
  """The standard deviation of a sample; 0 for one value, whose error bar is not seen."""
  return statistics.stdev(map(float, values)) if len(values) > 1 else 0.0
