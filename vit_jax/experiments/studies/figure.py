"""Draws the results of a study from the rows of results.csv alone."""

import pathlib
import statistics

from vit_jax.experiments.studies.study import Drawing
from vit_jax.plots import curves


def draw(rows: list[dict[str, str]], drawing: Drawing, paths: list[pathlib.Path]):
  """Draws means with deviations as error bars; the paper's figures are beside them.

  Args:
    rows: of results.csv, as text.
    drawing: which columns are drawn.
    paths: files to write; the ending tells the format.
  """
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  columns = ["score"] + ["paper"] * any(row["paper"] for row in rows)
  parts = groups(rows, drawing.panel) if drawing.panel else {"": rows}
  size = (1 + 5 * len(columns), 4 * len(parts))
  figure = Figure(figsize=size, layout="constrained")
  grid = figure.subplots(len(parts), len(columns), squeeze=False)
  for line, (name, part) in zip(grid, parts.items(), strict=True):
    for axes, column in zip(line, columns, strict=True):
      panel(axes, [row for row in part if row[column]], drawing, column)
      axes.set_title(", ".join(filter(None, [name, "here" if column == "score" else "paper"])))
  for path in paths:
    curves.save(figure, path)


def panel(axes, rows: list[dict[str, str]], drawing: Drawing, column: str):
  """One panel: a curve for each value of `drawing.by`."""
  places = numbers([row[drawing.x] for row in rows])
  names = list(dict.fromkeys(row[drawing.by] if drawing.by else "" for row in rows))
  along = all(map(is_number, places))  # a line has no meaning between values that have no order
  for number, name in enumerate(names):
    shift = 0.0 if along else 0.1 * (number - (len(names) - 1) / 2)
    points = groups([row for row in rows if not drawing.by or row[drawing.by] == name], drawing.x)
    axes.errorbar(
      [places[x] + shift for x in points],
      [statistics.fmean(map(float, column_of(points[x], column))) for x in points],
      [deviation(column_of(points[x], column)) for x in points],
      marker="o",
      linestyle="-" if along else "none",
      capsize=3,
      label=name,
    )
  if not along:
    axes.set_xticks(list(places.values()), list(places))
  axes.set(xlabel=drawing.x, ylabel=drawing.label)
  if drawing.log:
    axes.set_xscale("log")
  axes.grid(alpha=0.3)
  if drawing.by and rows:
    axes.legend(title=drawing.by)


def column_of(rows: list[dict[str, str]], column: str) -> list[str]:
  """The different values of the paper, or all scores."""
  values = [row[column] for row in rows]
  return values if column == "score" else sorted(set(values))


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
