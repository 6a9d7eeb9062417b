"""The results of a study: a table of all runs, a page with means over seeds, and the figure."""

import dataclasses
import json
import math
import re
import statistics
from collections.abc import Sequence

from vit_jax.evaluation import catalogue
from vit_jax.extras.experiments.studies import figure, results
from vit_jax.extras.experiments.studies.results import deviation
from vit_jax.extras.experiments.studies.study import Cell, Study
from vit_jax.process.text import aligned, markdown_table, one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path

PAGE = "results.md"
FIGURE = "figure"
TAKES = {"last": "after the last step", "best": "the best of all evaluations"}


@dataclasses.dataclass(frozen=True)
class CellResult:
  """The result of a cell.

  Attributes:
    cell: its label.
    factors: what varies, as text.
    mean: the mean score.
    deviation: standard deviation of a sample (division by n - 1); None for one seed.
    seeds: the number of scores.
    chosen: the chosen settings, as JSON; "{}" if nothing is chosen.
    paper: the paper's number; None: it has none.
  """

  cell: str
  factors: dict[str, str]
  mean: float
  deviation: float | None
  seeds: int
  chosen: str
  paper: float | None


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of the page.

  Attributes:
    caption: what it shows.
    rows: its cells, the head first.
    texts: the number of columns of text, which come first.
    printed: whether it is printed on the terminal too.
  """

  caption: str
  rows: list[list[str]]
  texts: int = 1
  printed: bool = True


def write(
  study: Study,
  folder: Path,
  rows: list[dict],
  command: str,
  *,
  trials: Sequence[dict] = (),
  curves: Sequence[dict] = (),
) -> list[CellResult]:
  """Writes the tables, results.md, figure.svg and figure.png; returns the results of the cells.

  The page and the figure are made from the tables: results.csv, trials.csv if something was chosen,
  and curves.csv for a figure over the epochs.

  Raises:
    RunError: the folder cannot be written to; files that were there stay as they were.
  """
  with workdir.writing(folder):
    results.write(folder / results.RESULTS, rows)
    written = results.read_rows(folder / results.RESULTS)
    tried = rewritten(folder / results.TRIALS, trials)
    points = rewritten(folder / results.CURVES, curves)
    files.write_text(folder / PAGE, page(study, written, tried, command))
    if written:
      paths = [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")]
      drawn = points or with_trials(study, written, tried)
      figure.draw(drawn, study.drawing, paths, percent=scores_are_accuracies(study))
  return lines(written)


def scores_are_accuracies(study: Study) -> bool:
  """Whether all scores are fractions of images."""
  metrics = {study.score_of(cell).metric for cell in study.cells}
  return all(catalogue.curve(metric) == "accuracy" for metric in metrics)


def rewritten(path: Path, rows: Sequence[dict]) -> list[dict[str, str]]:
  """Writes rows to a file, and reads them back; writes no file if there never were any rows."""
  if rows or files.exists(path):
    results.write(path, rows)
  return results.read_rows(path)


def with_trials(study: Study, rows: list[dict], trials: list[dict]) -> list[dict]:
  """The rows to draw: those of results.csv, and the trials if the axis is a chosen setting."""
  if all(x in rows[0] for x in study.drawing.along()):
    return rows
  chosen = [row | json.loads(row["chosen"]) | dict(part=row["cell"]) for row in rows]
  tried = []
  for row in trials:
    curve = "tried"
    if ", " in row["candidate"]:
      curve = "tried with other settings"
    tried.append(row | dict(cell=row["candidate"], part=curve))
  return [{key: str(value) for key, value in row.items()} for row in [*tried, *chosen]]


def tables(study: Study, rows: list[dict], trials: list[dict]) -> list[Table]:
  """Tables of the results and their means, from results.csv, and of the trials in trials.csv."""
  scores = dict.fromkeys(
    f"`{score.metric}`, {TAKES[score.take]}" for score in map(study.score_of, study.cells)
  )
  caption = f"{'; '.join(scores)}: mean ± standard deviation over seeds (n - 1)."
  result = [cell_table(caption, lines(rows))]
  for over in study.means:
    names = " and ".join(map(escaped, over))
    caption = f"Mean over {names}, with the deviation of this mean over seeds:"
    result.append(cell_table(caption, means(study.cells, rows, over)))
  if trials:
    shown = ("cell", "stage", "candidate", "metric", "score", "chosen")
    rounded = [row | dict(score=f"{float(row['score']):.4f}") for row in trials]
    tried = [shown, *([row[key] for key in shown] for row in rounded)]
    one_choice = len({(row["cell"], row["stage"]) for row in trials}) == 1
    result.append(Table("Tried on held-out data:", tried, texts=4, printed=one_choice))
  return result


def text(folder: Path, study: Study) -> str:
  """The results for the terminal, from the files of a folder."""
  rows = results.read_rows(folder / results.RESULTS)
  trials = results.read_rows(folder / results.TRIALS)
  first, *others = [one for one in tables(study, rows, trials) if one.printed]
  blocks = [aligned(first.rows, left=range(first.texts))]
  for one in others:
    blocks.append(f"{one.caption}\n{aligned(one.rows, left=range(one.texts))}")
  if any(row["paper"] for row in rows):
    blocks.append(f"The paper: {study.paper.caption}.")
  return "\n\n".join(blocks)


def page(study: Study, rows: list[dict], trials: list[dict], command: str) -> str:
  """The text of results.md."""
  blocks = [f"```\n{command}\n```"]
  for one in tables(study, rows, trials):
    blocks += [one.caption, markdown(one.rows)]
  expected = study.seeds * len(study.cells)
  if len(rows) < expected:
    blocks.append(f"{expected - len(rows)} of {expected} results are missing.")
  if rows:
    blocks.append(f"![The results]({FIGURE}.svg)")
    blocks += not_drawn(study.drawing.along(), rows)
  if study.paper:
    blocks.append(f"The paper: {study.paper.caption}.")
  blocks.append(f"All runs: [{results.RESULTS}]({results.RESULTS}).\n")
  return "\n\n".join(blocks)


def not_drawn(columns: Sequence[str], rows: list[dict[str, str]]) -> list[str]:
  """A line for each axis of the figure on which cells have no value."""
  cells = {x: dict.fromkeys(row["cell"] for row in rows if row.get(x) == "") for x in columns}
  return [
    f"Not in the figure, since their {figure.name_of(x)} are not known: "
    f"{', '.join(map(escaped, some))}."
    for x, some in cells.items()
    if some
  ]


def lines(rows: list[dict[str, str]]) -> list[CellResult]:
  """A line for each cell, in the order of the rows."""
  by_cell = {}
  for row in rows:
    by_cell.setdefault(row["cell"], []).append(row)
  return [line(cell, some) for cell, some in by_cell.items()]


def line(cell: str, rows: list[dict[str, str]]) -> CellResult:
  """The result of one cell."""
  scores = [float(row["score"]) for row in rows]
  first = rows[0]
  names = list(first)
  paper = None
  if first["paper"]:
    paper = float(first["paper"])
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
  cells: Sequence[Cell], rows: list[dict[str, str]], over: tuple[str, ...]
) -> list[CellResult]:
  """Means over some factors: a line for each combination of the others, if it has a seed.

  A mean needs all of its cells, so a seed that is missing in one of them is left out.
  """
  groups = {}
  for cell in cells:
    kept = tuple((key, str(value)) for key, value in cell.factors.items() if key not in over)
    groups.setdefault(kept, []).append([row for row in rows if row["cell"] == cell.label])
  averaged = [mean_over(dict(kept), of_cells) for kept, of_cells in groups.items()]
  return [one for one in averaged if one.seeds]


def mean_over(factors: dict[str, str], of_cells: list[list[dict[str, str]]]) -> CellResult:
  """The mean over cells, each given by its rows, with the deviation of this mean over seeds.

  The paper's mean is given if it has a number for each cell.
  """
  scores = [{row["seed"]: float(row["score"]) for row in rows} for rows in of_cells]
  seeds = set.intersection(*map(set, scores))
  values = [statistics.fmean(one[seed] for one in scores) for seed in seeds]
  paper = None
  if all(rows and rows[0]["paper"] for rows in of_cells):
    paper = statistics.fmean(float(rows[0]["paper"]) for rows in of_cells)
  return CellResult(
    cell=" ".join(factors.values()),
    factors=factors,
    mean=statistics.fmean(values) if values else math.nan,
    deviation=deviation(values),
    seeds=len(values),
    chosen="{}",
    paper=paper,
  )


def cell_table(caption: str, some: list[CellResult]) -> Table:
  """The table of some results; columns that would be empty are left out."""
  if not some:
    return Table(caption, [["cell", "score", "seeds"]])
  columns = []
  if needs_labels(some):
    columns.append(["cell", *(one_line(one.cell) for one in some)])
  for factor in some[0].factors:
    columns.append([one_line(factor), *(one_line(one.factors[factor]) for one in some)])
  texts = len(columns)
  columns.append(["score", *map(score, some)])
  columns.append(["seeds", *(f"{one.seeds}" for one in some)])
  if any(one.chosen != "{}" for one in some):
    columns.append(["chosen", *(one.chosen for one in some)])
  if any(one.paper is not None for one in some):
    columns.append(["paper", *map(_paper, some)])
  return Table(caption, [list(row) for row in zip(*columns, strict=True)], texts=texts)


def _paper(one: CellResult) -> str:
  return "" if one.paper is None else f"{one.paper:.4f}"


def needs_labels(some: list[CellResult]) -> bool:
  """Whether factors do not tell the cells apart."""
  return len({tuple(one.factors.values()) for one in some}) < len(some)


def score(one: CellResult) -> str:
  """Mean and deviation."""
  if one.deviation is None:
    return f"{one.mean:.4f}"
  return f"{one.mean:.4f} ± {one.deviation:.4f}"


def escaped(text: str) -> str:
  """A text for Markdown that shows it as it is."""
  return re.sub(r"[\\|*`\[<~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def markdown(rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown, its head first, with markup in the cells escaped."""
  return markdown_table([escaped(cell) for cell in row] for row in rows)
