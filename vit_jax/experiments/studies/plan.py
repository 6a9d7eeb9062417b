"""What a study costs before it starts: runs, steps, images, exaFLOPs, device-days."""

from typing import NamedTuple

from vit_jax.devices.chips import CHIPS
from vit_jax.experiments.studies import jobs
from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.study import Study
from vit_jax.process.columns import aligned

# The paper's pre-trainings on JFT-300M took 32% (ViT-H/14) to 43% (ViT-L/16) of the peak of their
# TPU v3 cores, by its exaFLOPs (Table 6) and core-days (Table 2).
CHIP, MFU = "TPU v3", 0.4
DAY = 86_400  # seconds


class Estimate(NamedTuple):
  """The cost of a cell, or of the whole study. None: not known, since the data is not there."""

  name: str
  runs: int
  steps: int | None
  images: int | None
  exaflops: float | None
  device_days: float | None


def line(name: str, some: list[Job], costs: dict[str, Cost]) -> Estimate:
  """The sum over jobs. The settings that will be chosen count as the first candidate."""
  found = [costs[repr(job)] for job in some]
  steps = total([cost.steps for cost in found])
  images = None if steps is None else sum(cost.steps * cost.batch_size for cost in found)
  exaflops = None if steps is None else sum(cost.exaflops(cost.steps) for cost in found)
  days = None if steps is None else exaflops * 1e18 / (CHIPS[CHIP].peak_flops * MFU * DAY)
  return Estimate(name, len(some), steps, images, exaflops, days)


def total(values: list[int | None]) -> int | None:
  """The sum; None if a value is not known."""
  return None if None in values else sum(values)


def lines(study: Study, costs: dict[str, Cost]) -> list[Estimate]:
  """A line for each cell, then one for the study, in which shared runs count once."""
  found = [line(cell.label, jobs.of_cell(cell, study.seeds), costs) for cell in study.cells]
  return [*found, line("all, shared runs once", jobs.of_study(study), costs)]


def table(found: list[Estimate]) -> str:
  """The plan for the terminal."""
  head = ["cell", "runs", "steps", "images", "exaFLOPs", "device-days"]
  rows = [
    [one.name, f"{one.runs}", whole(one.steps), whole(one.images), *map(number, one[4:])]
    for one in found
  ]
  said = f"Device-days are of a {CHIP} core at {MFU:.0%} of its peak, an assumption."
  if any(one.steps is None for one in found):
    said += " Steps that are not known depend on the number of training images: give the data."
  return f"{aligned([head, *rows])}\n{said}"


def whole(value: int | None) -> str:
  """A whole number, "?" if it is not known."""
  return "?" if value is None else f"{value:,}"


def number(value: float | None) -> str:
  """Three significant digits, "?" if it is not known."""
  return "?" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
