"""The cost of runs: time by cause, speed, and FLOPs next to the paper's."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.extras.report.document import Section, TableCell, count, percent
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.learning import objective as objectives
from vit_jax.process.text import h_mm_ss
from vit_jax.recipes import cost

TIME = "time/"


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section about the cost of these runs."""
  title = "What they cost"
  if len(runs) == 1:
    title = "What it cost"
  return Section(
    title,
    tables=[
      side_by_side("Time of all starts, up to the last line of metrics.jsonl", runs, times),
      side_by_side("Speed and computation", runs, speeds),
    ],
  )


def account(run: RecordedRun) -> dict[str, float]:
  """Seconds by cause, summed over all starts; each start counts from zero again."""
  spent = list(filter(None, map(seconds_by_cause, run.lines)))
  if not spent:
    return {}
  last_of_starts = [a for a, b in itertools.pairwise(spent) if begun_again(a, b)]
  last_of_starts.append(spent[-1])
  return {cause: sum(line.get(cause, 0) for line in last_of_starts) for cause in spent[-1]}


def seconds_by_cause(line: Mapping[str, float]) -> dict[str, float]:
  """The times in a line of metrics.jsonl."""
  return {
    key.removeprefix(TIME): float(value) for key, value in line.items() if key.startswith(TIME)
  }


def begun_again(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
  """Whether the run was started again between two lines of seconds by cause.

  All lines of one start have the same start-up time. The sum alone does not tell: the first line
  of a start may have more time than the last line of a short start before it.
  """
  if before.get("start-up") != after.get("start-up"):
    return True
  return sum(after.values()) < sum(before.values())


def times(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """The total time, and the time and share of each cause."""
  spent = account(run)
  total = sum(spent.values())
  if not total:
    return
  yield "all", TableCell(h_mm_ss(total), total)
  for cause, seconds in spent.items():
    yield cause, TableCell(f"{h_mm_ss(seconds)} ({seconds / total:.1%})", seconds, seconds / total)


def speeds(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """Goodput, speed, utilisation and FLOPs."""
  spent = account(run)
  if total := sum(spent.values()):
    yield "Goodput: share of the time in steps", percent(spent.get("steps", 0) / total)
  for key, name, form in (
    ("images_per_second", "Images per second, median", ",.0f"),
    ("mfu", "MFU, median", ".1%"),
    ("data/input_wait", "Waiting for input, median", ".1%"),
  ):
    if values := [float(line[key]) for line in run.lines if key in line]:
      middle = statistics.median(values)
      yield name, TableCell(format(middle, form), middle)
  if run.config is not None:
    yield from computation(run)


def computation(run: RecordedRun) -> Iterator[tuple[str, TableCell | str]]:
  """The FLOPs of the completed steps, and of the paper's runs with the same model."""
  config = run.config
  images = max((line.get("data/images", 0) for line in run.lines), default=0)
  if images:
    yield "Images seen", count(images)
  # With frozen parameters a step costs less than the formula says.
  if images and run.fact("trained_parameters", int) == run.fact("parameters", int):
    exaflops = objectives.of_config(config).training_flops(config.data.image_size) * images / 1e18
    yield "exaFLOPs", TableCell(f"{exaflops:,.4g}", exaflops)
  if cost.label(config.model) != config.model.name:
    return
  for (name, epochs), paper in cost.PAPER.items():
    if name == config.model.name:
      title = f"exaFLOPs in the paper (Table 6): {epochs} epochs of JFT-300M at 224 px"
      yield title, count(paper)
