"""The results of a study: a table of all runs, a page with means over seeds, and the figure."""

import dataclasses
import math
import pathlib
import re
import statistics
from collections.abc import Sequence

from vit_jax.experiments.studies import figure, results
from vit_jax.experiments.studies.results import deviation
from vit_jax.experiments.studies.study import Cell, Study
from vit_jax.process.text import aligned, one_line
from vit_jax.storage import files, workdir

PAGE, FIGURE = "results.md", "figure"


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


def write(
  study: Study,
  folder: pathlib.Path,
  rows: list[dict],
  command: str,
  *,
  curves: Sequence[dict] = (),
) -> list[CellResult]:
  """Writes results.csv, results.md, figure.svg and figure.png; returns the lines of the table.

  All but results.csv come from what results.csv says. With `curves`, the figure comes from
  curves.csv instead.

  Raises:
    RunError: the folder cannot be written to; files that were there stay as they were.
  """
  with workdir.writing(folder):
    results.write(folder / results.RESULTS, rows)
    written = results.read(folder / results.RESULTS)
    files.write_text(folder / PAGE, page(study, written, command))
    if written:
      paths = [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")]
      if curves:
        results.write(folder / results.CURVES, curves)
      drawn = results.read(folder / results.CURVES) if curves else written
      figure.draw(drawn, study.drawing, paths)
  return lines(written)


def page(study: Study, rows: list[dict[str, str]], command: str) -> str:
  """The text of results.md, from the rows of results.csv."""
  of_cells = lines(rows)
  take = {"last": "after the last step", "best": "the best of all evaluations"}[study.score.take]
  parts = [
    f"```\n{command}\n```",
    f"`{study.score.metric}`, {take}: mean ± standard deviation over seeds (n - 1).",
    markdown(of_cells),
  ]
  for over in study.means:
    names = " and ".join(map(escaped, over))
    parts.append(f"Mean over {names}, with the deviation of this mean over seeds:")
    parts.append(markdown(means(study.cells, rows, over)))
  expected = study.seeds * len(study.cells)
  missing = expected - sum(line.seeds for line in of_cells)
  if missing:
    parts.append(f"{missing} of {expected} results are missing.")
  if of_cells:
    parts.append(f"![The results]({FIGURE}.svg)")
  if study.paper:
    parts.append(f"The paper: {study.paper.caption}.")
  return "\n\n".join([*parts, f"All runs: [{results.RESULTS}]({results.RESULTS}).\n"])


def lines(rows: list[dict[str, str]]) -> list[CellResult]:
  """A line for each cell, in the order of the rows."""
  by_cell = {}
  for row in rows:
    by_cell.setdefault(row["cell"], []).append(row)
  return [line(cell, some) for cell, some in by_cell.items()]


def line(cell: str, rows: list[dict[str, str]]) -> CellResult:
  """The result of one cell."""
  scores = [float(row["score"]) for row in rows]
  first, names = rows[0], list(rows[0])
  return CellResult(
    cell=cell,
    factors={name: first[name] for name in names[1 : names.index("seed")]},
    mean=statistics.fmean(scores),
    deviation=deviation(scores),
    seeds=len(scores),
    chosen=first["chosen"],
    paper=float(first["paper"]) if first["paper"] else None,
  )


def means(
  cells: Sequence[Cell], rows: list[dict[str, str]], over: tuple[str, ...]
) -> list[CellResult]:
  """Means over some factors: a line for each combination of the others, if it has a seed.

  A mean needs all of its cells, so a seed that one of them has not done is left out.
  """
  groups = {}
  for cell in cells:
    kept = tuple((key, str(value)) for key, value in cell.factors.items() if key not in over)
    groups.setdefault(kept, []).append([row for row in rows if row["cell"] == cell.label])
  averaged = [mean_over(dict(kept), of_cells) for kept, of_cells in groups.items()]
  return [one for one in averaged if one.seeds]


def mean_over(factors: dict[str, str], of_cells: list[list[dict[str, str]]]) -> CellResult:
  """The mean over cells, each given by its rows, with the deviation of this mean over seeds.

  The paper's mean is given if it has a figure for each cell.
  """
  scores = [{row["seed"]: float(row["score"]) for row in rows} for rows in of_cells]
  seeds = set.intersection(*map(set, scores))
  values = [statistics.fmean(one[seed] for one in scores) for seed in seeds]
  published = [rows[0]["paper"] if rows else "" for rows in of_cells]
  return CellResult(
    cell=" ".join(factors.values()),
    factors=factors,
    mean=statistics.fmean(values) if values else math.nan,
    deviation=deviation(values),
    seeds=len(values),
    chosen="{}",
    paper=statistics.fmean(map(float, published)) if all(published) else None,
  )


def cells(some: list[CellResult]) -> list[list[str]]:
  """The cells of the table, the head first; columns that would be empty are left out."""
  if not some:
    return [["cell", "score", "seeds"]]
  chosen = any(one.chosen != "{}" for one in some)
  paper = any(one.paper is not None for one in some)
  labelled = needs_labels(some)
  names = map(one_line, some[0].factors)
  head = ["cell"] * labelled + [*names, "score", "seeds"] + ["chosen"] * chosen + ["paper"] * paper
  return [head] + [
    [one_line(one.cell)] * labelled
    + [*map(one_line, one.factors.values()), score(one), f"{one.seeds}"]
    + [one.chosen] * chosen
    + ["" if one.paper is None else f"{one.paper:.4f}"] * paper
    for one in some
  ]


def needs_labels(some: list[CellResult]) -> bool:
  """Whether factors do not tell the cells apart."""
  return len({tuple(one.factors.values()) for one in some}) < len(some)


def score(one: CellResult) -> str:
  """Mean and deviation."""
  return f"{one.mean:.4f}" + ("" if one.deviation is None else f" ± {one.deviation:.4f}")


def table(some: list[CellResult]) -> str:
  """The table for the terminal."""
  texts = range(len(some[0].factors) + needs_labels(some) if some else 1)
  return aligned(cells(some), left=texts)


def escaped(text: str) -> str:
  """A text for Markdown that shows it as it is."""
  return re.sub(r"[\\|*`\[<~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def markdown(some: list[CellResult]) -> str:
  """The table in Markdown; what would be markup there is shown as it is."""
  head, *rest = [[escaped(cell) for cell in row] for row in cells(some)]
  return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])
