"""The cost of runs: time by cause, speed, and FLOPs next to the paper's."""

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import ConfigError
from vit_jax.extras.report.document import Section, Table, TableCell, count, percent
from vit_jax.extras.report.run import RecordedRun, side_by_side
from vit_jax.process.text import h_mm_ss, rounded
from vit_jax.recipes import cost

TIME = "time/"
PREFIXES = ((1e18, "exa"), (1e15, "peta"), (1e12, "tera"), (1e9, "giga"))


def section(runs: Sequence[RecordedRun]) -> Section:
  """The section about the cost of these runs."""
  return Section("Cost", tables=[times(runs), side_by_side("Speed and computation", runs, speeds)])


def seconds_of(run: RecordedRun) -> float:
  """The time of all starts, without that after each one's last line of metrics.jsonl."""
  return sum(account(run).values())


def account(run: RecordedRun) -> dict[str, float]:
  """Seconds by cause, summed over all starts; each start counts from zero again."""
  spent = list(filter(None, map(seconds_by_cause, run.lines)))
  if not spent:
    return {}
  last_of_starts = [a for a, b in itertools.pairwise(spent) if begun_again(a, b)]
  last_of_starts.append(spent[-1])
  causes = dict.fromkeys(cause for line in reversed(last_of_starts) for cause in line)
  return {cause: sum(line.get(cause, 0) for line in last_of_starts) for cause in causes}


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


def times(runs: Sequence[RecordedRun]) -> Table:
  """The total time, and the time of each cause; of one run also the shares."""
  caption = "Time of all starts, up to the last line of metrics.jsonl"
  if len(runs) > 1:
    return side_by_side(f"{caption}, h:mm:ss", runs, clocks)
  total = seconds_of(runs[0])
  rows = [
    (cause, [cell, percent(cell.value / total)]) for cause, cell in clocks(runs[0]) if cell.value
  ]
  return Table(caption, ["", "h:mm:ss", "%"], rows)


def clocks(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """The total time, and the time of each cause that took half a second or more."""
  spent = account(run)
  if not spent:
    return
  for cause, seconds in [("all", sum(spent.values())), *spent.items()]:
    if round(seconds):
      yield cause, TableCell(h_mm_ss(seconds), seconds)


def speeds(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """Goodput, speed, utilisation and FLOPs."""
  if total := seconds_of(run):
    yield "Goodput (time in steps), %", percent(account(run).get("steps", 0) / total)
  if values := values_of(run, "images_per_second"):
    middle = statistics.median(values)
    yield "Images per second, median", TableCell(rounded(middle), middle)
  if values := values_of(run, "mfu"):
    yield "MFU, median, %", percent(statistics.median(values))
  if values := values_of(run, "data/input_wait"):
    yield "Waiting for input, median, %", percent(statistics.median(values))
  if images := images_seen(run):
    yield "Images seen", count(images)
  yield from beside_the_paper(run)


def values_of(run: RecordedRun, key: str) -> list[float]:
  """All values of a metric."""
  return [float(line[key]) for line in run.lines if key in line]


def images_seen(run: RecordedRun) -> int:
  """The training images that the completed steps have seen, over all starts."""
  return int(max(values_of(run, "data/images"), default=0))


def flops(run: RecordedRun) -> float:
  """FLOPs of the completed steps, forward and backward, by the shapes of the model; 0: unknown.

  Those of a run with frozen parameters are unknown, and of one whose teacher is gone.
  """
  if run.config is None:
    return 0.0
  try:
    of_image = cost.training_flops(run.config)
  except (ConfigError, OSError):
    return 0.0
  return float((of_image or 0) * images_seen(run))


def beside_the_paper(run: RecordedRun) -> Iterator[tuple[str, TableCell]]:
  """The exaFLOPs of a run and of the paper's runs, if the paper has the model."""
  if run.config is None or cost.label(run.config.model) != run.config.model.name:
    return
  papers = [
    (epochs, x) for (name, epochs), x in cost.PAPER.items() if name == run.config.model.name
  ]
  exaflops = flops(run) / 1e18
  if papers and exaflops:
    yield "exaFLOPs", TableCell(f"{exaflops:,.4g}", exaflops)
  for epochs, number in papers:
    yield f"exaFLOPs in the paper (Table 6): {epochs} epochs of JFT-300M at 224 px", count(number)


def prefixed(number: float) -> tuple[float, str]:
  """A number as (number, prefix), such as (3.7, "tera")."""
  for power, prefix in PREFIXES:
    if number >= power:
      return number / power, prefix
  return number, ""


def spelled(seconds: float) -> str:
  """A time in its two largest units, such as "4 min 34 s" or "3 h 12 min"."""
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  days, hours = divmod(hours, 24)
  units = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds, "s")]
  first = next((i for i, (number, _) in enumerate(units) if number), len(units) - 1)
  return " ".join(f"{number} {unit}" for number, unit in units[first : first + 2])
