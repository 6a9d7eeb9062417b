"""Remembers what a study was, so that a change of it under existing results is said."""

import json
import pathlib

from vit_jax.config import RunError
from vit_jax.config.reading import read_json
from vit_jax.experiments.studies import rows
from vit_jax.experiments.studies.ledger import Ledger, signature
from vit_jax.experiments.studies.study import Study
from vit_jax.storage import files, workdir

STUDY, RESULTS, EARLIER = "study.json", "results.csv", "earlier.csv"
MAX_BYTES = 2**24


def note(study: Study, ledger: Ledger) -> str:
  """Writes study.json; rows of cells that no longer match move to earlier.csv.

  Runs are never removed or changed: a changed cell gets new workdirs. A cell that only has more
  candidates than before matches.

  Returns:
    A sentence that names the cells that no longer match; "" if all do.

  Raises:
    ConfigError: a cell has a wrong recipe or setting.
    RunError: study.json is damaged, or the folder cannot be written to.
  """
  new = {cell.label: signature(ledger, cell) for cell in study.cells}
  with workdir.writing(ledger.folder):
    files.make_folder(ledger.folder)
    old = read(ledger.folder / STUDY)
    gone = [label for label, names in old.items() if not names <= {*new.get(label, [])}]
    keep_rows(ledger.folder, gone)
    files.write_text(ledger.folder / STUDY, json.dumps(new, indent=2) + "\n")
  if not gone:
    return ""
  earlier = ledger.folder / EARLIER
  results = f", and their results in {earlier}" if earlier.exists() else ""
  return (
    f"The study has changed: the cells {', '.join(map(repr, gone))} no longer match their earlier "
    f"runs. These stay in {ledger.folder / 'runs'}{results}; what has changed is run anew."
  )


def keep_rows(folder: pathlib.Path, labels: list[str]):
  """Copies the rows of these cells from results.csv to earlier.csv, each once."""
  moved = [row for row in of_cells(folder / RESULTS) if row["cell"] in labels]
  kept = of_cells(folder / EARLIER)
  known = {(row["cell"], row["run"]) for row in kept}
  new = [row for row in moved if (row["cell"], row["run"]) not in known]
  if new:
    rows.write(folder / EARLIER, [*kept, *new])


def of_cells(path: pathlib.Path) -> list[dict[str, str]]:
  """The rows of a CSV file that tell of cells.

  Raises:
    RunError: it is damaged.
  """
  found = rows.read(path)
  for column in ("cell", "run"):
    if found and column not in found[0]:
      raise RunError(f"{path} has no column {column!r}; move it away, and start again.")
  return found


def read(path: pathlib.Path) -> dict[str, set[str]]:
  """{label: names of its runs} of the study that the folder holds; {} if it is new."""
  if not path.exists():
    return {}
  try:
    found = read_json(path, most=MAX_BYTES)
    return {label: set(map(str, names)) for label, names in found.items()}
  except (ValueError, TypeError, OSError) as error:
    raise RunError(
      f"{path} is damaged ({error}); remove it to go on with the study as it is now."
    ) from error
