"""The results of a survey of speed: a table, a page and a figure, from results.csv alone."""

import dataclasses
import pathlib

from vit_jax.extras.benchmarks.case import INFERENCE, TRAINING, Case
from vit_jax.extras.benchmarks.survey import RESULTS, fits, largest, of_case
from vit_jax.extras.experiments.studies import report
from vit_jax.extras.plots import charts
from vit_jax.process.text import aligned, cells
from vit_jax.storage import files, workdir

PAGE = "results.md"
FIGURE = "figure"
COLUMNS = {  # field of `CaseSpeed`: (heading, format)
  "what": ("", ""),
  "model": ("model", ""),
  "image_size": ("pixels", "d"),
  "gflops": ("GFLOPs/image", ",.2f"),
  "images_per_second": ("images/s", ",.1f"),
  "batch": ("at batch", "d"),
  "largest_batch": ("largest batch", "d"),
}
PANELS = {"images_per_second": "images/s of a device", "largest_batch": "largest batch of a device"}


@dataclasses.dataclass(frozen=True)
class CaseSpeed:
  """The result of a case; numbers are of one device.

  Attributes:
    what, model, image_size: of the case.
    gflops: 1e9 FLOPs for one image.
    images_per_second: at the fastest batch; None if no batch fits.
    batch: the fastest batch; None if no batch fits.
    largest_batch: the largest power of two that fits, 0 if none; None if it is not known yet.
  """

  what: str
  model: str
  image_size: int
  gflops: float
  images_per_second: float | None
  batch: int | None
  largest_batch: int | None


def lines(trials: list[dict[str, str]]) -> list[CaseSpeed]:
  """A line for each case, in the order of the trials."""
  cases = [Case(row["what"], row["model"], int(row["image_size"])) for row in trials]
  return [line(case, trials) for case in dict.fromkeys(cases)]


def line(case: Case, trials: list[dict[str, str]]) -> CaseSpeed:
  """The result of one case."""
  some = of_case(trials, case)
  timed = [row for row in some if row["images_per_second"]]
  best = max(timed, key=lambda row: float(row["images_per_second"]), default=None)
  return CaseSpeed(
    **dataclasses.asdict(case),
    gflops=float(some[0]["gflops"]),
    images_per_second=best and float(best["images_per_second"]),
    batch=best and int(best["batch"]),
    largest_batch=largest(fits(some)),
  )


def table(speeds: list[CaseSpeed]) -> str:
  """The table for the terminal."""
  return aligned(rows_of(speeds), left=(0, 1))


def rows_of(speeds: list[CaseSpeed]) -> list[list[str]]:
  """The cells of the table, its headings first; unknown values are empty."""
  return cells(map(dataclasses.asdict, speeds), COLUMNS)


def write(folder: pathlib.Path, trials: list[dict[str, str]], origin: str, command: str):
  """Writes results.md, figure.svg and figure.png.

  Args:
    folder: holds results.csv.
    trials: its rows, at least one.
    origin: where the numbers come from.
    command: the command that makes them, or several, a line each.

  Raises:
    RunError: the folder cannot be written to.
  """
  speeds = lines(trials)
  rows = report.markdown(rows_of(speeds))
  paragraphs = [
    f"```\n{command}\n```",
    origin,
    rows,
    f"![The results]({FIGURE}.svg)",
    f"All trials: [{RESULTS}]({RESULTS}).\n",
  ]
  with workdir.writing(folder):
    files.write_text(folder / PAGE, "\n\n".join(paragraphs))
    draw(speeds, [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")])


def draw(speeds: list[CaseSpeed], paths: list[pathlib.Path]):
  """Speed and largest batch against the image size, a curve for each model (Figure 12)."""
  from matplotlib.figure import Figure  # slow to import, and only needed at the end

  figure = Figure(figsize=(11, 8), layout="constrained")
  for line_of_axes, what in zip(figure.subplots(2, 2), (INFERENCE, TRAINING), strict=True):
    some = [speed for speed in speeds if speed.what == what]
    for axes, (field, label) in zip(line_of_axes, PANELS.items(), strict=True):
      panel(axes, some, field)
      axes.set(title=what, xlabel="pixels along a side", ylabel=label)
  for path in paths:
    charts.save(figure, path)


def panel(axes, some: list[CaseSpeed], field: str):
  """One panel; a case whose number is not known, or not even one image fits, has no point."""
  drawn = [one for one in some if getattr(one, field)]
  for model in dict.fromkeys(one.model for one in drawn):
    points = sorted((one.image_size, getattr(one, field)) for one in drawn if one.model == model)
    axes.plot(*zip(*points, strict=True), marker="o", label=model)
  axes.set(xscale="log", yscale="log")
  axes.grid(alpha=0.3)
  if drawn:
    charts.round_log_ticks(axes.xaxis)
    charts.round_log_ticks(axes.yaxis)
  charts.legend_above(axes)
