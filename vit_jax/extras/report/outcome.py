"""The results of runs: final and best metrics, and curves."""

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vit_jax.evaluation import catalogue
from vit_jax.extras.plots import charts
from vit_jax.extras.plots.charts import Series
from vit_jax.extras.plots.labels import metric
from vit_jax.extras.report.document import Picture, Section, Table, TableCell, count
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.process.text import one_line
from vit_jax.storage.metrics_log import ACCURACY
from vit_jax.weights import average

Point = tuple[int, float]  # a step and a value
Points = list[Point]

# Metrics of steps: (key in metrics.jsonl, label, whether the axis is logarithmic).
OF_STEPS = (
  ("learning_rate", "learning rate", False),
  ("grad_norm", "norm of the gradient", True),
  ("update_norm", "norm of the update", True),
  ("param_norm", "norm of the parameters", False),
  ("images_per_second", "images per second", False),
)
MAX_SETS = 8  # evaluations with a chart of their own


def section(runs: Sequence[RecordedRun], details: Sequence[Section]) -> Section:
  """The section about the results; `details` come after the metrics and the curves."""
  return Section(
    "What came out",
    tables=[*metrics(runs), evaluations(runs)],
    sections=[Section("Curves", pictures=curves(runs)), *details],
  )


def metrics(runs: Sequence[RecordedRun]) -> list[Table]:
  """The last and the best value of each metric, with their steps; several runs side by side."""
  whose = of_average(runs)
  if len(runs) > 1:
    last_of = functools.partial(chosen, choose=last)
    best_of = functools.partial(chosen, choose=best)
    return [
      side_by_side(f"Last metrics, with their steps{whose}", runs, last_of),
      side_by_side(f"Best metrics, with their steps{whose}", runs, best_of),
    ]
  rows = [
    (key, [*at(key, last(key, points)), *at(key, best(key, points))])
    for key in keys_of(runs[0])
    if (points := points_of(runs[0], key))
  ]
  return [Table(f"Metrics{whose}", ["metric", "last", "at step", "best", "at step"], rows)]


def of_average(runs: Sequence[RecordedRun]) -> str:
  """Says which runs evaluated a moving average; "" if none did."""
  averaged = [run.name for run in runs if run.averaged]
  if not averaged:
    return ""
  which = "evaluations"
  if len(averaged) < len(runs):
    which = f"evaluations of {', '.join(averaged)}"
  return f" ({which}: {average.in_words(True)})"


def evaluations(runs: Sequence[RecordedRun]) -> Table:
  """The images, the parameters and the score of each evaluation with details."""
  rows = []
  for run in runs:
    before = f"{run.name}: " if len(runs) > 1 else ""
    for scored in run.sets:
      if score := scored.score:
        rows.append((f"{before}{scored.name}", [scored.origin, score]))
  return Table("Evaluations, by their images and parameters", ["", "of", "score"], rows)


def chosen(
  run: RecordedRun, choose: Callable[[str, Points], Point]
) -> Iterator[tuple[str, TableCell]]:
  """(key, value with its step) of each metric of a run, at the point that `choose` returns."""
  for key in keys_of(run):
    if points := points_of(run, key):
      step, value = choose(key, points)
      yield key, TableCell(f"{value_in_words(key, value)} ({step:,})", value)


def keys_of(run: RecordedRun) -> list[str]:
  """A run's metrics: the training loss and those of evaluations."""
  keys = sorted({key for line in run.lines for key in line})
  return [key for key in keys if key == "loss" or catalogue.metric(key)]


def points_of(run: RecordedRun, key: str) -> Points:
  """(step, value) of a metric, without NaN and infinity."""
  points = [(line["step"], float(line[key])) for line in run.lines if key in line]
  return [point for point in points if math.isfinite(point[1])]


def last(key: str, points: Points) -> Point:
  """The last point of any metric."""
  return points[-1]


def best(key: str, points: Points) -> Point:
  """The point with the best value; the first of equals."""
  known = catalogue.metric(key)
  value = operator.itemgetter(1)
  if key == "loss" or (known is not None and known.smaller_is_better):
    return min(points, key=value)
  return max(points, key=value)


def at(key: str, point: Point) -> list[TableCell]:
  """The cells of a value and its step."""
  step, value = point
  return [TableCell(value_in_words(key, value), value), count(step)]


def value_in_words(key: str, value: float) -> str:
  """A value as text: accuracies in percent."""
  return f"{value:.2%}" if catalogue.curve(key) == "accuracy" else f"{value:.4g}"


def curves(runs: Sequence[RecordedRun]) -> list[Picture]:
  """The charts of all metrics over steps; all runs share a chart."""
  keys = list(dict.fromkeys(key for run in runs for key in keys_of(run)))
  losses = [key for key in keys if key == "loss" or catalogue.curve(key) == "loss"]
  accuracies = [key for key in keys if catalogue.curve(key) == "accuracy"]
  sets = list(dict.fromkeys(key.rpartition("/")[0] for key in accuracies))
  charts_or_none = [chart(runs, losses, "loss", log=True)]
  for name in sets[:MAX_SETS]:
    of_set = [ACCURACY, *(key for key in accuracies if key.rpartition("/")[0] == name)]
    charts_or_none.append(chart(runs, of_set, f"accuracy, {one_line(name)}", percent=True))
  charts_or_none += [chart(runs, [key], label, log=log) for key, label, log in OF_STEPS]
  return [picture for picture in charts_or_none if picture]


def chart(
  runs: Sequence[RecordedRun],
  keys: Sequence[str],
  label: str,
  *,
  log: bool = False,
  percent: bool = False,
) -> Picture | None:
  """A chart of metrics; None if no run has one of them at two steps or more."""
  lines = [
    series(run, place, key, points, several=len(runs) > 1, alone=len(keys) == 1)
    for place, run in enumerate(runs)
    for key in keys
    if (points := points_of(run, key))
  ]
  if not any(len(line.steps) > 1 for line in lines):
    return None
  title = label[0].upper() + label[1:]
  if any(catalogue.metric(key) for key in keys):
    title += of_average(runs)
  alt = f"{title} by step. {'; '.join(map(in_words, lines[: charts.MAX_LEGEND]))}."
  return Picture(charts.lines(lines, label, log=log, percent=percent), "svg+xml", alt, title)


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
  steps, values = np.array(points, float).T
  return Series(one_line(name), steps, values, group=place, dots=bool(catalogue.metric(key)))


def in_words(line: Series) -> str:
  """The first and the last value of a line, for readers who do not see it."""
  return (
    f"{line.name}: from {line.values[0]:.4g} at step {line.steps[0]:,.0f} to "
    f"{line.values[-1]:.4g} at step {line.steps[-1]:,.0f}"
  )
