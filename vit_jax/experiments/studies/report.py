"""Writes the results of a study: a table of all runs, a page, and the figure."""

import pathlib
from collections.abc import Sequence

from vit_jax.experiments.studies import figure, memory, rows, summary
from vit_jax.experiments.studies.study import Study
from vit_jax.experiments.studies.summary import CellResult
from vit_jax.storage import files, workdir

PAGE, FIGURE, CURVES = "results.md", "figure", "curves.csv"


def write(
  study: Study,
  folder: pathlib.Path,
  found: list[dict],
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
    rows.write(folder / memory.RESULTS, found)
    read = rows.read(folder / memory.RESULTS)
    lines = summary.lines(read)
    files.write_text(folder / PAGE, page(study, read, command))
    if read:
      paths = [folder / f"{FIGURE}.{kind}" for kind in ("svg", "png")]
      if curves:
        rows.write(folder / CURVES, curves)
      drawn = rows.read(folder / CURVES) if curves else read
      figure.draw(drawn, study.drawing, paths)
  return lines


def page(study: Study, found: list[dict[str, str]], command: str) -> str:
  """The text of results.md, from the rows of results.csv."""
  lines = summary.lines(found)
  take = {"last": "after the last step", "best": "the best of all evaluations"}[study.score.take]
  said = [
    f"```\n{command}\n```",
    f"`{study.score.metric}`, {take}: mean ± standard deviation over seeds (n - 1).",
    summary.markdown(lines),
  ]
  for over in study.means:
    names = " and ".join(map(summary.escaped, over))
    said.append(f"Mean over {names}, with the deviation of this mean over seeds:")
    said.append(summary.markdown(summary.means(study.cells, found, over)))
  missing = sum(study.seeds - line.seeds for line in lines)
  missing += study.seeds * (len(study.cells) - len(lines))
  if missing:
    said.append(f"{missing} of {study.seeds * len(study.cells)} results are missing.")
  if lines:
    said.append(f"![The results]({FIGURE}.svg)")
  if study.paper:
    said.append(f"The paper: {study.paper.caption}.")
  return "\n\n".join([*said, f"All runs: [{memory.RESULTS}]({memory.RESULTS}).\n"])
