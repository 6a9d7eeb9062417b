"""Means and deviations over seeds, as a table in Markdown and for the terminal."""

import dataclasses
import math
import re
import statistics

from vit_jax.process.columns import aligned
from vit_jax.process.text import one_line


@dataclasses.dataclass(frozen=True)
class CellResult:
  """The result of a cell.

  Attributes:
    cell: its label.
    factors: what varies, as text.
    mean: of the scores.
    deviation: standard deviation of a sample (division by n - 1); None for one seed.
    seeds: the number of scores.
    chosen: the chosen settings, as JSON; "{}" if nothing is chosen.
    paper: the paper's figure; None: it has none.
  """

  cell: str
  factors: dict[str, str]
  mean: float
  deviation: float | None
  seeds: int
  chosen: str
  paper: float | None


def lines(rows: list[dict[str, str]]) -> list[CellResult]:
  """A line for each cell, in the order of the rows."""
  groups = {}
  for row in rows:
    groups.setdefault(row["cell"], []).append(row)
  return [line(cell, found) for cell, found in groups.items()]


def line(cell: str, found: list[dict[str, str]]) -> CellResult:
  """The result of one cell."""
  scores = [float(row["score"]) for row in found]
  first, names = found[0], list(found[0])
  paper = float(first["paper"]) if first["paper"] else None
  return CellResult(
    cell=cell,
    factors={name: first[name] for name in names[1 : names.index("seed")]},
    mean=statistics.fmean(scores),
    deviation=deviation(scores),
    seeds=len(scores),
    chosen=first["chosen"],
    paper=paper,
  )


def deviation(values: list[float]) -> float | None:
  """The standard deviation of a sample; None for one value, NaN if a value is not finite."""
  if len(values) < 2:
    return None
  return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def cells(found: list[CellResult]) -> list[list[str]]:
  """The cells of the table, the head first; columns that would be empty are left out."""
  if not found:
    return [["cell", "score", "seeds"]]
  chosen = any(one.chosen != "{}" for one in found)
  paper = any(one.paper is not None for one in found)
  names = map(one_line, found[0].factors)
  head = [*names, "score", "seeds"] + ["chosen"] * chosen + ["paper"] * paper
  return [head] + [
    [*map(one_line, one.factors.values()), score(one), f"{one.seeds}"]
    + [one.chosen] * chosen
    + ["" if one.paper is None else f"{one.paper:.4f}"] * paper
    for one in found
  ]


def score(one: CellResult) -> str:
  """Mean and deviation."""
  return f"{one.mean:.4f}" + ("" if one.deviation is None else f" ± {one.deviation:.4f}")


def table(found: list[CellResult]) -> str:
  """The table for the terminal."""
  texts = range(len(found[0].factors) if found else 1)
  return aligned(cells(found), left=texts)


def markdown(found: list[CellResult]) -> str:
  """The table in Markdown; what would be markup there is shown as it is."""
  head, *rest = [[re.sub(r"[\\|*`\[<]", r"\\\g<0>", cell) for cell in row] for row in cells(found)]
  rows = [head, ["---"] * len(head), *rest]
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)
