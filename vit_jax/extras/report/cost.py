"""What runs cost: time by cause, speed, and FLOPs beside those of the paper."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.extras.report.document import Section, TableCell, count, percent
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.learning import objective as objectives
from vit_jax.recipes import cost
from vit_jax.storage.metrics_log import clock

TIME = "time/"


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section of runs."""
  return Section(
    "What it cost" if len(runs) == 1 else "What they cost",
    tables=[
      side_by_side("Time of all starts, up to the last line of metrics.jsonl", runs, times),
      side_by_side("Speed and computation", runs, speeds),
    ],
  )


def account(run: RecordedRun) -> dict[str, float]:
  """Seconds by cause of all starts together; each start counts from zero again."""
  spent = [
    {key.removeprefix(TIME): float(value) for key, value in line.items() if key.startswith(TIME)}
    for line in run.lines
  ]
  spent = list(filter(None, spent))
  ends = [*(begun_again(a, b) for a, b in itertools.pairwise(spent)), True]
  last = [causes for causes, end in zip(spent, ends, strict=False) if end]
  return {key: sum(causes.get(key, 0) for causes in last) for key in (spent[-1] if spent else ())}


def begun_again(before: Mapping[str, float], after: Mapping[str, float]) -> bool:
  """Whether the run was started between two lines, each the seconds by cause.

  The time of the start-up is one number in all lines of a start. A start may have more time in its
  first line than a short start before it had in all.
  """
  return before.get("start-up") != after.get("start-up") or sum(after.values()) < sum(
    before.values()
  )


def times(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """The whole time, and the time of each cause with its share."""
  spent = account(run)
  total = sum(spent.values())
  if not total:
    return
  yield "all", TableCell(clock(total), total)
  for cause, seconds in spent.items():
    yield cause, TableCell(f"{clock(seconds)} ({seconds / total:.1%})", seconds, seconds / total)


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
  """The FLOPs of the steps that were made, and those of the paper's runs of the same model."""
  config = run.config
  images = max((line.get("data/images", 0) for line in run.lines), default=0)
  if images:
    yield "Images seen", count(images)
  # With frozen parameters, a step costs less than the formula says.
  if images and run.fact("trained_parameters", int) == run.fact("parameters", int):
    exaflops = objectives.of_config(config).training_flops(config.data.image_size) * images / 1e18
    yield "exaFLOPs", TableCell(f"{exaflops:,.4g}", exaflops)
  if cost.label(config.model) == config.model.name:
    for (name, epochs), paper in cost.PAPER.items():
      if name == config.model.name:
        title = f"exaFLOPs in the paper (Table 6): {epochs} epochs of JFT-300M at 224 px"
        yield title, count(paper)
