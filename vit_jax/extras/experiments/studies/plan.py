"""The cost of a study before it starts: runs, steps, images, FLOPs and time."""

from typing import NamedTuple

from vit_jax.devices.chips import CHIPS
from vit_jax.extras.experiments import runs
from vit_jax.extras.experiments.studies import jobs
from vit_jax.extras.experiments.studies.jobs import Cost, Job, total
from vit_jax.extras.experiments.studies.runner import StudyRunner
from vit_jax.extras.experiments.studies.study import Study
from vit_jax.process import text as texts
from vit_jax.process.text import aligned, duration

# The paper's pre-trainings on JFT-300M took 32% (ViT-H/14) to 43% (ViT-L/16) of the peak of their
# TPU v3 cores, by its exaFLOPs (Table 6) and core-days (Table 2).
CHIP = "TPU v3"
MFU = 0.4
DAY = 86_400  # seconds
UNITS = (("exaFLOPs", 1.0), ("petaFLOPs", 1e-3), ("teraFLOPs", 1e-6))


class Estimate(NamedTuple):
  """The cost of a cell, or of the whole study; None if not known.

  Steps are not known if the data is missing, and FLOPs also if parameters are frozen. If steps were
  measured, the minutes on this machine are known; otherwise the device-days.
  """

  name: str
  runs: int
  steps: int | None
  images: int | None
  exaflops: float | None
  minutes_here: float | None
  device_days: float | None


def text(runner: StudyRunner, form: str, *, plugins: str, measure: bool) -> str:
  """The plan in words or as JSON.

  Args:
    runner: of the study.
    form: "table" or "json".
    plugins: as config.plugins of all runs.
    measure: whether steps are timed on these devices.
  """
  costs = runs.in_new_process(runner.checked_costs, plugins=plugins, measure=measure)
  estimates = lines(runner.study, costs)
  if form == "json":
    return texts.json_text([one._asdict() for one in estimates])
  return estimate_table(estimates)


def line(name: str, some: list[Job], costs: dict[str, Cost]) -> Estimate:
  """The sum over jobs. Settings to be chosen count as the first candidate."""
  of_jobs = [costs[repr(job)] for job in some]
  steps = total([cost.steps for cost in of_jobs])
  seconds = total([cost.seconds for cost in of_jobs])
  minutes = images = exaflops = days = None
  if seconds is not None:
    minutes = seconds / 60
  if steps is not None:
    images = sum(cost.steps * cost.batch_size for cost in of_jobs)
    exaflops = total([cost.exaflops(cost.steps) for cost in of_jobs])
  if exaflops is not None and seconds is None:
    days = exaflops * 1e18 / (CHIPS[CHIP].peak_flops * MFU * DAY)
  return Estimate(name, len(some), steps, images, exaflops, minutes, days)


def lines(study: Study, costs: dict[str, Cost]) -> list[Estimate]:
  """A line for each cell, then one for the study, in which shared runs count once."""
  of_cells = [line(cell.label, jobs.of_cell(cell, study.seeds), costs) for cell in study.cells]
  return [*of_cells, line("all, shared runs once", jobs.of_study(study), costs)]


def estimate_table(estimates: list[Estimate]) -> str:
  """The plan for the terminal."""
  most = max((one.exaflops or 0 for one in estimates), default=0)
  unit, size = next((one for one in UNITS if most >= one[1]), UNITS[-1])
  rows = [["cell", "runs", "steps", "images", unit]]
  for one in estimates:
    flops = None
    if one.exaflops is not None:
      flops = one.exaflops / size
    rows.append([one.name, f"{one.runs}", whole(one.steps), whole(one.images), number(flops)])
  if any(one.minutes_here is not None for one in estimates):
    times = ["time here", *(minutes(one.minutes_here) for one in estimates)]
    note = (
      "Measured here: time is that of compiling and training, one run after another, by steps that "
      "were timed on this machine. Start-up, data, evaluation and saving come on top."
    )
  else:
    times = ["device-days", *(number(one.device_days) for one in estimates)]
    note = f"Device-days are of a {CHIP} core at {MFU:.0%} of its peak, an assumption."
  rows = [[*row, time] for row, time in zip(rows, times, strict=True)]
  if any(one.steps is None for one in estimates):
    note += " Steps that are not known depend on the number of training images: give the data."
  if any(one.steps is not None and one.exaflops is None for one in estimates):
    note += f" {unit} are not known where only a part of the model is trained."
  return f"{aligned(rows)}\n{note}"


def minutes(value: float | None) -> str:
  """A time in words, "?" if it is not known."""
  return "?" if value is None else duration(60 * value)


def whole(value: int | None) -> str:
  """A whole number, "?" if it is not known."""
  return "?" if value is None else f"{value:,}"


def number(value: float | None) -> str:
  """Three significant digits, "?" if it is not known."""
  if value is None:
    return "?"
  if value < 1000:
    return f"{value:.3g}"
  return f"{value:,.0f}"
