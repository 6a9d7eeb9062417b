"""Remembers what a study was, so that a change of it under existing results is said."""

import json
import pathlib

from vit_jax.config import RunError
from vit_jax.experiments.studies import jobs, results
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.store import RunStore, first_option, picking
from vit_jax.experiments.studies.study import Cell, Study, naming
from vit_jax.storage import files, workdir
from vit_jax.storage.files import read_json

STUDY, EARLIER = "study.json", "earlier.csv"
MAX_BYTES = 2**24


def note(study: Study, store: RunStore) -> str:
  """Writes study.json; rows of cells that no longer match move to earlier.csv.

  Runs are never removed or changed: a changed cell gets new workdirs. A cell that only has more
  candidates than before matches.

  Returns:
    A sentence that names the cells that no longer match; "" if all do.

  Raises:
    ConfigError: a cell has a wrong recipe or setting.
    RunError: study.json is damaged, or the folder cannot be written to.
  """
  new = {cell.label: signature(store, cell) for cell in study.cells}
  with workdir.writing(store.folder):
    files.make_folder(store.folder)
    old = read(store.folder / STUDY)
    gone = [label for label, names in old.items() if not names <= {*new.get(label, [])}]
    keep_rows(store.folder, gone)
    files.write_text(store.folder / STUDY, json.dumps(new, indent=2) + "\n")
  if not gone:
    return ""
  earlier = store.folder / EARLIER
  where = f", and their results in {earlier}" if files.exists(earlier) else ""
  return (
    f"The study has changed: the cells {', '.join(map(repr, gone))} no longer match their earlier "
    f"runs. These stay in {store.folder / 'runs'}{where}; what has changed is run anew."
  )


def signature(store: RunStore, cell: Cell) -> list[str]:
  """The names of all that a cell computes with the first seed, for every candidate.

  It does not depend on the results of runs.

  Raises:
    ConfigError: names the cell whose recipe or settings are wrong.
  """
  names = []
  with naming(cell.label):
    for stage in cell.stage.chain():
      for option in stage.choice.options:
        run = store.run_with(Job(stage, jobs.FIRST), picking(stage, option))
        names.append(run.folder.name)
      for trial in jobs.trials_of_all(stage):
        names.append(store.run_with(trial, first_option).folder.name)
      if stage.has_trials():
        names.append(f"{stage.name} by {stage.choice.score}")
  return sorted(set(names))


def keep_rows(folder: pathlib.Path, labels: list[str]):
  """Copies the rows of these cells from results.csv to earlier.csv, each once."""
  moved = [row for row in of_cells(folder / results.RESULTS) if row["cell"] in labels]
  kept = of_cells(folder / EARLIER)
  known = {(row["cell"], row["run"]) for row in kept}
  new = [row for row in moved if (row["cell"], row["run"]) not in known]
  if new:
    results.write(folder / EARLIER, [*kept, *new])


def of_cells(path: pathlib.Path) -> list[dict[str, str]]:
  """The rows of a CSV file that tell of cells.

  Raises:
    RunError: it is damaged.
  """
  rows = results.read(path)
  for column in ("cell", "run"):
    if rows and column not in rows[0]:
      raise RunError(f"{path} has no column {column!r}; move it away, and start again.")
  return rows


def read(path: pathlib.Path) -> dict[str, set[str]]:
  """{label: names of its runs} of the study that the folder holds; {} if it is new."""
  if not files.exists(path):
    return {}
  try:
    signatures = read_json(path, most=MAX_BYTES)
    return {label: set(map(str, names)) for label, names in signatures.items()}
  except (ValueError, TypeError, OSError) as error:
    raise RunError(
      f"{path} is damaged ({error}); remove it to go on with the study as it is now."
    ) from error
