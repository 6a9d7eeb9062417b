"""The results of runs: metrics at the end, and curves."""

import dataclasses
import math
import operator
from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.evaluation import catalogue
from vit_jax.extras.plots import charts
from vit_jax.extras.plots.charts import Panel, Series
from vit_jax.extras.plots.labels import metric
from vit_jax.extras.report.document import Picture, Section, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.process.text import one_line
from vit_jax.storage.metrics_log import ACCURACY
from vit_jax.weights.card import parameters_in_words

Point = tuple[int, float]  # a step and a value
Points = list[Point]

# Metrics of steps: (key in metrics.jsonl, label, whether the axis is logarithmic).
OF_STEPS = (
  ("learning_rate", "learning rate", False),
  ("grad_norm", "norm of the gradient", True),
)
MAX_SETS = 8  # evaluations with a chart of their own
PANEL = 1.8  # inches, the height of a chart on the first screen


def section(runs: Sequence[RecordedRun], details: Sequence[Section]) -> Section:
  """The section about the results; `details` come after the metrics."""
  return Section("Results", tables=[metrics(runs)], sections=details)


def metrics(runs: Sequence[RecordedRun]) -> Table:
  """The last value of each metric, with its step; several runs side by side.

  The best value is left out: a test set chooses no checkpoint.
  """
  if len(runs) > 1:
    return side_by_side(f"Metrics at the end{of_average(runs)}", runs, last_values)
  rows = [
    (name_of(key), [cell(key, points[-1][1]), count(points[-1][0])])
    for key in keys_of(runs[0])
    if (points := points_of(runs[0], key))
  ]
  return Table("Metrics at the end", ["metric", "value", "step"], rows)


def last_values(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """(name, value) of each metric of a run, with its step if that is not the run's last."""
  for key in keys_of(run):
    if points := points_of(run, key):
      step, value = points[-1]
      last = cell(key, value)
      if step != run.step:
        last = dataclasses.replace(last, text=f"{last.text} (step {step:,})")
      yield name_of(key), last


def name_of(key: str) -> str:
  """A metric in words, with its unit."""
  if key == "loss":
    return "training loss"
  if catalogue.curve(key) == "accuracy":
    return f"{metric(key)}, %"
  return metric(key)


def cell(key: str, value: float) -> TableCell:
  """A metric's value in the unit of `name_of`."""
  if catalogue.curve(key) == "accuracy":
    return TableCell(f"{100 * value:.2f}", value)
  return TableCell(f"{value:.4g}", value)


def of_average(runs: Sequence[RecordedRun]) -> str:
  """Says which runs evaluated a moving average; "" if none did."""
  averaged = [run.name for run in runs if run.averaged]
  if not averaged:
    return ""
  which = "evaluations"
  if len(averaged) < len(runs):
    which = f"evaluations of {', '.join(averaged)}"
  return f" ({which}: {parameters_in_words(True)})"


def keys_of(run: RecordedRun) -> list[str]:
  """A run's metrics: the training loss and those of evaluations."""
  keys = sorted({key for line in run.lines for key in line})
  return [key for key in keys if key == "loss" or catalogue.metric(key)]


def points_of(run: RecordedRun, key: str) -> Points:
  """(step, value) of a metric, without NaN and infinity."""
  points = [(line["step"], float(line[key])) for line in run.lines if key in line]
  return [point for point in points if math.isfinite(point[1])]


def best(key: str, points: Points) -> Point:
  """The point with the best value; the first of equals."""
  known = catalogue.metric(key)
  value = operator.itemgetter(1)
  if key == "loss" or (known is not None and known.smaller_is_better):
    return min(points, key=value)
  return max(points, key=value)


def value_in_words(key: str, value: float) -> str:
  """A value as text: accuracies in percent."""
  return f"{value:.2%}" if catalogue.curve(key) == "accuracy" else f"{value:.4g}"


def progress(runs: Sequence[RecordedRun], key: str) -> Picture | None:
  """The accuracy, or another metric `key`, above the training loss; None without a curve."""
  percent = catalogue.curve(key) == "accuracy"
  parts = [
    Panel(drawn(runs, [key]), metric(key), percent=percent),
    Panel(drawn(runs, ["loss"]), "training loss", log=True),
  ]
  return picture([part for part in parts if is_curve(part)], "", height=PANEL)


def curves(runs: Sequence[RecordedRun]) -> Section:
  """The charts of all metrics over steps; all runs share a chart."""
  keys = list(dict.fromkeys(key for run in runs for key in keys_of(run)))
  losses = [key for key in keys if key == "loss" or catalogue.curve(key) == "loss"]
  accuracies = [key for key in keys if catalogue.curve(key) == "accuracy"]
  sets = list(dict.fromkeys(key.rpartition("/")[0] for key in accuracies))
  parts = [Panel(drawn(runs, losses), "loss", log=True)]
  for name in sets[:MAX_SETS]:
    of_set = [ACCURACY, *(key for key in accuracies if key.rpartition("/")[0] == name)]
    parts.append(Panel(drawn(runs, of_set), f"accuracy, {one_line(name)}", percent=True))
  parts += [Panel(drawn(runs, [key]), label, log=log) for key, label, log in OF_STEPS]
  pictures = [picture([part], capitalized(part.label)) for part in parts if is_curve(part)]
  return Section("Curves", pictures=pictures)


def is_curve(part: Panel) -> bool:
  """Whether a run has a value at two steps or more."""
  return any(len(line.steps) > 1 for line in part.series)


def picture(parts: Sequence[Panel], caption: str, height: float = charts.HEIGHT) -> Picture | None:
  """The chart of some panels, with its lines in words; None if there is no panel."""
  if not parts:
    return None
  words = [f"{capitalized(part.label)} by step. {lines_in_words(part.series)}." for part in parts]
  return Picture(charts.lines(parts, height=height), "svg+xml", " ".join(words), caption)


def capitalized(text: str) -> str:
  """The text with a capital letter at its beginning."""
  return text[:1].upper() + text[1:]


def drawn(runs: Sequence[RecordedRun], keys: Sequence[str]) -> list[Series]:
  """Metrics of runs as lines of a chart."""
  return [
    series(run, place, key, points, several=len(runs) > 1, alone=len(keys) == 1)
    for place, run in enumerate(runs)
    for key in keys
    if (points := points_of(run, key))
  ]


def series(run: RecordedRun, place: int, key: str, points, *, several: bool, alone: bool) -> Series:
  """A metric of a run as a line, with a name that tells it apart from the chart's other lines.

  Args:
    run: the run.
    place: its place among the runs, which chooses the colour.
    key: of the metric.
    points: the metric's (step, value).
    several: whether the chart shows several runs.
    alone: whether the chart shows this metric only.
  """
  name = metric(key)
  if key in ("loss", ACCURACY):
    name = "training"
  if several:
    name = run.name if alone else f"{run.name} {name}"
  group = place if several else None
  steps, values = np.array(points, float).T
  return Series(one_line(name), steps, values, group=group, dots=bool(catalogue.metric(key)))


def lines_in_words(lines: Sequence[Series]) -> str:
  """The lines that the legend names, `in_words`, and the number of the others."""
  words = [in_words(line) for line in lines[: charts.MAX_LEGEND]]
  if more := len(lines) - len(words):
    words.append(f"and {more} more")
  return "; ".join(words)


def in_words(line: Series) -> str:
  """The first and the last value of a line, for readers who do not see it."""
  return (
    f"{line.name}: from {line.values[0]:.4g} at step {line.steps[0]:,.0f} to "
    f"{line.values[-1]:.4g} at step {line.steps[-1]:,.0f}"
  )
