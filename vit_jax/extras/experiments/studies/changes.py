"""Names and keeps the results in results.csv that no longer belong to the study."""

import itertools

from vit_jax.config import RunError
from vit_jax.extras.experiments.studies import results
from vit_jax.extras.experiments.studies.jobs import Job
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.extras.experiments.studies.study import Stage, Study, naming
from vit_jax.storage import workdir
from vit_jax.storage.paths import Path

EARLIER = "earlier.csv"


def note(study: Study, store: RunStore) -> str:
  """Copies the rows of results.csv whose runs are not the study's to earlier.csv.

  Runs are never removed or changed: a changed cell gets new workdirs.

  Returns:
    A sentence that names the cells of these rows; "" if there are none.

  Raises:
    ConfigError: a cell has a wrong recipe or setting.
    RunError: a table is damaged, or the folder cannot be written to.
  """
  stages = {cell.label: cell.stage for cell in study.cells}
  gone = [
    row
    for row in of_cells(store.folder / results.RESULTS)
    if row["cell"] not in stages or row["run"] not in names_of(store, stages[row["cell"]], row)
  ]
  if not gone:
    return ""
  earlier = store.folder / EARLIER
  kept = of_cells(earlier)
  known = {(row["cell"], row["run"]) for row in kept}
  new = [row for row in gone if (row["cell"], row["run"]) not in known]
  with workdir.writing(store.folder):
    results.write(earlier, [*kept, *new])
  labels = dict.fromkeys(repr(row["cell"]) for row in gone)
  return (
    f"The study has changed: the results of the cells {', '.join(labels)} were of other runs. They "
    f"stay in {earlier}, and these runs in {store.folder / 'runs'}; what has changed is run anew."
  )


def names_of(store: RunStore, stage: Stage, row: dict[str, str]) -> set[str]:
  """The name of the run that a row should belong to; with each candidate if none is chosen yet."""
  job = Job(stage, int(row["seed"]))
  chain = stage.chain()

  def choosing(options):
    return lambda one: options[chain.index(one)]

  with naming(row["cell"]):
    run = store.run(job)
    if run:
      return {run.folder.name}
    choices = itertools.product(*(one.choice.options for one in chain))
    return {store.run_with(job, choosing(options)).folder.name for options in choices}


def of_cells(path: Path) -> list[dict[str, str]]:
  """The rows of a CSV file with results of cells.

  Raises:
    RunError: it is damaged.
  """
  rows = results.read_rows(path)
  for column in ("cell", "seed", "run"):
    if rows and column not in rows[0]:
      raise RunError(f"{path} has no column {column!r}; move it away, and start again.")
  return rows
