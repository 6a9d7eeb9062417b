"""Means and deviations over seeds, as a table in Markdown and for the terminal."""

import dataclasses
import math
import re
import statistics
from collections.abc import Sequence

from vit_jax.experiments.studies.study import Cell
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


def means(
  some: Sequence[Cell], rows: list[dict[str, str]], over: tuple[str, ...]
) -> list[CellResult]:
  """Means over some factors: a line for each combination of the others, if it has a seed.

  A mean needs all of its cells, so a seed that one of them has not done is left out.
  """
  by_cell = {cell.label: [row for row in rows if row["cell"] == cell.label] for cell in some}
  groups = {}
  for cell in some:
    kept = tuple((key, str(value)) for key, value in cell.factors.items() if key not in over)
    groups.setdefault(kept, []).append(by_cell[cell.label])
  found = [mean_over(dict(kept), cells) for kept, cells in groups.items()]
  return [one for one in found if one.seeds]


def mean_over(factors: dict[str, str], some: list[list[dict[str, str]]]) -> CellResult:
  """The mean over cells, each given by its rows, with the deviation of this mean over seeds.

  The paper's mean is given if it has a figure for each cell.
  """
  scores = [{row["seed"]: float(row["score"]) for row in rows} for rows in some]
  seeds = set.intersection(*map(set, scores))
  values = [statistics.fmean(one[seed] for one in scores) for seed in seeds]
  published = [rows[0]["paper"] if rows else "" for rows in some]
  return CellResult(
    cell=" ".join(factors.values()),
    factors=factors,
    mean=statistics.fmean(values) if values else math.nan,
    deviation=deviation(values),
    seeds=len(values),
    chosen="{}",
    paper=statistics.fmean(map(float, published)) if all(published) else None,
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
  labelled = needs_labels(found)
  names = map(one_line, found[0].factors)
  head = ["cell"] * labelled + [*names, "score", "seeds"] + ["chosen"] * chosen + ["paper"] * paper
  return [head] + [
    [one_line(one.cell)] * labelled
    + [*map(one_line, one.factors.values()), score(one), f"{one.seeds}"]
    + [one.chosen] * chosen
    + ["" if one.paper is None else f"{one.paper:.4f}"] * paper
    for one in found
  ]


def needs_labels(found: list[CellResult]) -> bool:
  """Whether factors do not tell the cells apart."""
  return len({tuple(one.factors.values()) for one in found}) < len(found)


def score(one: CellResult) -> str:
  """Mean and deviation."""
  return f"{one.mean:.4f}" + ("" if one.deviation is None else f" ± {one.deviation:.4f}")


def table(found: list[CellResult]) -> str:
  """The table for the terminal."""
  texts = range(len(found[0].factors) + needs_labels(found) if found else 1)
  return aligned(cells(found), left=texts)


def escaped(text: str) -> str:
  """A text for Markdown that shows it as it is."""
  return re.sub(r"[\\|*`\[<~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def markdown(found: list[CellResult]) -> str:
  """The table in Markdown; what would be markup there is shown as it is."""
  head, *rest = [[escaped(cell) for cell in row] for row in cells(found)]
  rows = [head, ["---"] * len(head), *rest]
  return "\n".join(f"| {' | '.join(row)} |" for row in rows)
