"""Studies that have changed since their numbers, or whose code has."""

import json
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping

from vit_jax import recipes
from vit_jax.config import ConfigError
from vit_jax.extras.experiments.studies import changes, loading, record, results
from vit_jax.extras.experiments.studies.jobs import FIRST, Job
from vit_jax.extras.experiments.studies.store import RunStore, first_option
from vit_jax.extras.experiments.studies.study import Cell, Score, Study
from vit_jax.process.text import aligned, listed
from vit_jax.storage import files

STUDIES = pathlib.Path("configs/studies")
NUMBERS = pathlib.Path("docs/images/studies")  # the results.csv of a study, as STUDY.csv
MARK = "†"
MAX_BYTES = 2**24  # of a page


def names(scale: str) -> list[str]:
  """The studies of this project that have a scale.

  Raises:
    ConfigError: the current folder is not that of this project.
  """
  paths = sorted(STUDIES.glob("*.py"))
  if not paths:
    raise ConfigError(f"There is no study in {STUDIES}; start in the folder of the repository.")
  return [path.stem for path in paths if scale in loading.functions(str(path))]


def seconds(name: str) -> float:
  """How long the runs of a study took; infinite if nothing is recorded.

  Each run counts with those before it, so a pre-training as often as it was fine-tuned.
  """
  rows = results.read_rows(NUMBERS / f"{name}.csv")
  if not rows:
    return float("inf")
  of_runs = {row["run"]: float(row["seconds"]) for row in rows}
  return sum(of_runs.values())


def stale(scale: str) -> dict[str, list[str]]:
  """{study: what has changed since its numbers} of those that have changed."""
  found = {name: list(reasons(name, scale)) for name in names(scale)}
  return {name: changed for name, changed in found.items() if changed}


def reasons(name: str, scale: str) -> Iterator[str]:
  """What has changed since the numbers of a study, in words.

  Raises:
    ConfigError: the study is wrong.
    RunError: its table is damaged.
  """
  rows = results.read_rows(NUMBERS / f"{name}.csv")
  if not rows:
    yield "no numbers"
    return
  study = loading.load(str(STUDIES / f"{name}.py"), scale)
  yield from changed_cells(study, rows)
  yield from changed_code(study, rows)


def changed_cells(study: Study, rows: list[dict[str, str]]) -> Iterator[str]:
  """Cells that were added, lack seeds, or whose runs or scores are others now."""
  stages = {cell.label: cell.stage for cell in study.cells}
  store = nowhere()
  other = [
    row["cell"]
    for row in rows
    if row["cell"] not in stages
    or row["run"] not in changes.names_of(store, stages[row["cell"]], row)
  ]
  cells = [*dict.fromkeys(other)]
  if {*cells} == {row["cell"] for row in rows}:
    yield "settings of all cells"
  elif cells:
    yield f"settings of {listed(cells)}"
  seeds = {label: {row["seed"] for row in rows if row["cell"] == label} for label in stages}
  if lacking := [label for label in stages if len(seeds[label]) < study.seeds]:
    yield f"no numbers, or of too few seeds, of {listed(lacking)}"
  scores = {cell.label: study.score_of(cell) for cell in study.cells}
  rescored = [
    row["cell"] for row in rows if row["cell"] in scores and is_other(row, scores[row["cell"]])
  ]
  if rescored:
    yield f"the score of {listed([*dict.fromkeys(rescored)])}"


def is_other(row: Mapping[str, str], score: Score) -> bool:
  """Whether the score of a row is another metric than this one, if the row tells."""
  recorded = row.get(score.metric)
  return score.take == "last" and recorded != row["score"] and recorded is not None


def changed_code(study: Study, rows: list[dict[str, str]]) -> Iterator[str]:
  """Packages whose code has changed."""
  if not all(row.get("code") for row in rows):
    yield "code not recorded"
  now = {cell.label: record.code(kinds(cell)) for cell in study.cells}
  made = [(row["cell"], json.loads(row["code"])) for row in rows if row.get("code")]
  changed = {
    name
    for cell, before in made
    for name, checksum in now.get(cell, {}).items()
    if before.get(name, checksum) != checksum  # those not recorded are named below
  }
  if changed:
    yield f"code of {', '.join(sorted(changed))}"
  unknown = {name for cell, before in made for name in now.get(cell, {}).keys() - before.keys()}
  if unknown:
    yield f"code not recorded of {', '.join(sorted(unknown))}"


def kinds(cell: Cell) -> set[str]:
  """The kinds of objective of the runs of a cell."""
  store = nowhere()
  found = (store.run_with(Job(stage, FIRST), first_option) for stage in cell.stage.chain())
  return {recipes.resolve(run.recipe, run.overrides).objective.kind for run in found}


def nowhere() -> RunStore:
  """A store without runs."""
  return RunStore(pathlib.Path("none"))


def text(found: Mapping[str, list[str]]) -> str:
  """The studies that have changed, for the terminal."""
  if not found:
    return "No study has changed since its numbers."
  rows = [["study", "commit", "changed since its numbers"]]
  for name, changed in found.items():
    commits = dict.fromkeys(
      row.get("commit", "")[:10] for row in results.read_rows(NUMBERS / f"{name}.csv")
    )
    rows.append([name, " ".join(filter(None, commits)) or "?", "; ".join(changed)])
  return aligned(rows, left=range(3))


def mark(page: pathlib.Path, found: Iterable[str]):
  """Puts a mark behind the links of a page to the tables of these studies, and of no others."""

  def marked(match):
    return match[1] + MARK * (match[2] in found)

  links = rf"(\]\([\w/.]*\b{NUMBERS.name}/(\w+)\.csv\)){MARK}?"
  text = files.read_bytes(page, most=MAX_BYTES).decode()
  files.write_text(page, re.sub(links, marked, text))
