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
from vit_jax.process.text import aligned, one_line
from vit_jax.storage import files, workdir
from vit_jax.storage.paths import Path

PAGE, FIGURE = "results.md", "figure"
TAKES = {"last": "after the last step", "best": "the best of all evaluations"}


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
    printed: whether it is for the terminal too.
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

  The page and the figure come from what the tables say: results.csv, trials.csv if something was
  chosen, and curves.csv for a figure over the epochs.

  Raises:
    RunError: the folder cannot be written to; files that were there stay as they were.
  """
  with workdir.writing(folder):
    results.write(folder / results.RESULTS, rows)
    written = results.read_rows(folder / results.RESULTS)
    tried, points = (
      rewritten(folder / name, some)
      for name, some in ((results.TRIALS, trials), (results.CURVES, curves))
    )
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
  """The rows as a file has them; there is none if there never were any."""
  if rows or files.exists(path):
    results.write(path, rows)
  return results.read_rows(path)


def with_trials(study: Study, rows: list[dict], trials: list[dict]) -> list[dict]:
  """What is drawn: the rows of results.csv, and the trials if the axis is what a sweep chose."""
  if all(x in rows[0] for x in study.drawing.along()):
    return rows
  chosen = [row | json.loads(row["chosen"]) | dict(part=row["cell"]) for row in rows]
  more = lambda row: " with other settings" * (", " in row["candidate"])
  tried = [row | dict(cell=row["candidate"], part=f"tried{more(row)}") for row in trials]
  return [{key: str(value) for key, value in row.items()} for row in [*tried, *chosen]]


def tables(study: Study, rows: list[dict], trials: list[dict]) -> list[Table]:
  """The results and their means, from the rows of results.csv; what was tried, of trials.csv."""
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
  rows, trials = (results.read_rows(folder / name) for name in (results.RESULTS, results.TRIALS))
  first, *others = [one for one in tables(study, rows, trials) if one.printed]
  parts = [aligned(first.rows, left=range(first.texts))]
  parts += [f"{one.caption}\n{aligned(one.rows, left=range(one.texts))}" for one in others]
  if any(row["paper"] for row in rows):
    parts.append(f"The paper: {study.paper.caption}.")
  return "\n\n".join(parts)


def page(study: Study, rows: list[dict], trials: list[dict], command: str) -> str:
  """The text of results.md."""
  parts = [f"```\n{command}\n```"]
  for one in tables(study, rows, trials):
    parts += [one.caption, markdown(one.rows)]
  expected = study.seeds * len(study.cells)
  if len(rows) < expected:
    parts.append(f"{expected - len(rows)} of {expected} results are missing.")
  if rows:
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

  The paper's mean is given if it has a number for each cell.
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


def cell_table(caption: str, some: list[CellResult]) -> Table:
  """The table of some results; columns that would be empty are left out."""
  if not some:
    return Table(caption, [["cell", "score", "seeds"]])
  chosen = any(one.chosen != "{}" for one in some)
  paper = any(one.paper is not None for one in some)
  labelled = needs_labels(some)
  names = map(one_line, some[0].factors)
  head = ["cell"] * labelled + [*names, "score", "seeds"] + ["chosen"] * chosen + ["paper"] * paper
  rows = [
    [one_line(one.cell)] * labelled
    + [*map(one_line, one.factors.values()), score(one), f"{one.seeds}"]
    + [one.chosen] * chosen
    + ["" if one.paper is None else f"{one.paper:.4f}"] * paper
    for one in some
  ]
  return Table(caption, [head, *rows], texts=len(some[0].factors) + labelled)


def needs_labels(some: list[CellResult]) -> bool:
  """Whether factors do not tell the cells apart."""
  return len({tuple(one.factors.values()) for one in some}) < len(some)


def score(one: CellResult) -> str:
  """Mean and deviation."""
  return f"{one.mean:.4f}" + ("" if one.deviation is None else f" ± {one.deviation:.4f}")


def escaped(text: str) -> str:
  """A text for Markdown that shows it as it is."""
  return re.sub(r"[\\|*`\[<~&]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)


def markdown(rows: Sequence[Sequence[str]]) -> str:
  """A table in Markdown, its head first; what would be markup there is shown as it is."""
  head, *rest = [[escaped(cell) for cell in row] for row in rows]
  return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rest])
