"""The paper's figures beside the cells of a study."""

import csv
import io

from vit_jax.config import ConfigError
from vit_jax.config.reading import read_bytes
from vit_jax.experiments.studies.study import Cell, Study

MAX_BYTES = 2**20


def figures(study: Study) -> dict[str, float]:
  """The paper's figure of each cell by label; cells without one are left out.

  Raises:
    ConfigError: the file cannot be read, lacks the column, or fits a cell twice.
  """
  if study.paper is None:
    return {}
  table = read(study.paper.file)
  if not table or study.paper.column not in table[0]:
    raise ConfigError(f"{study.paper.file} has no column {study.paper.column!r}.")
  found = {cell.label: of_cell(study, cell, table) for cell in study.cells}
  return {label: value for label, value in found.items() if value is not None}


def of_cell(study: Study, cell: Cell, table: list[dict[str, str]]) -> float | None:
  """The figure in the one row that has the factors of a cell."""
  shared = [factor for factor in cell.factors if factor in table[0]]
  fitting = [
    line for line in table if all(line[factor] == str(cell.factors[factor]) for factor in shared)
  ]
  if len(fitting) > 1 or not shared:
    raise ConfigError(
      f"{study.paper.file} has {len(fitting)} rows for the cell {cell.label!r}; give it a factor "
      f"that tells them apart, one of {', '.join(table[0])}."
    )
  text = fitting[0][study.paper.column] if fitting else ""
  try:
    return float(text) if text else None
  except ValueError as error:
    raise ConfigError(f"{study.paper.file} holds {text!r}, which is no number.") from error


def read(path: str) -> list[dict[str, str]]:
  """The rows of a CSV file."""
  try:
    text = read_bytes(path, most=MAX_BYTES).decode()
  except (OSError, ValueError) as error:
    raise ConfigError(f"The paper's figures in {path} cannot be read: {error}.") from error
  return list(csv.DictReader(io.StringIO(text)))
