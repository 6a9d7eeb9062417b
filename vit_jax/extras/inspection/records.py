"""The worst mistakes of an evaluation, from the predictions that it wrote."""

import csv
import math
from typing import NamedTuple

from vit_jax.config import ConfigError
from vit_jax.evaluation.results import COLUMNS, MAX_BYTES, PREDICTIONS
from vit_jax.process import text as texts
from vit_jax.process.program import own_command
from vit_jax.process.text import quoted
from vit_jax.storage import files
from vit_jax.storage.paths import Path
from vit_jax.storage.workdir import CONFIG, DETAILS, check_links, details


class Mistake(NamedTuple):
  """An image with a wrong prediction: its name, its class, the prediction and its probability."""

  name: str
  label: str
  prediction: str
  probability: float


def evaluated(workdir: Path) -> list[Path]:
  """The predictions.csv of the newest evaluation of each set.

  Raises:
    ConfigError: there is no evaluation, a file is a link out of the folder, or the folder is not
      the workdir of a run.
  """
  check_links(workdir)
  sets = details(workdir)
  newest = {path.name: path for path in reversed(sets) if files.is_file(path / PREDICTIONS)}
  paths = [newest[name] / PREDICTIONS for name in sorted(newest)]
  if not paths and not files.is_file(workdir / CONFIG):
    raise ConfigError(
      f"{workdir} is not the workdir of a run: it has no {CONFIG}. Mistakes are those of an "
      "evaluation; give the folder that its --workdir named."
    )
  if not paths and sets:
    raise ConfigError(
      f"the evaluations in {workdir / DETAILS} have no {PREDICTIONS}: only the sets of "
      "config.evaluate that score the head have, if each of their images has one label."
    )
  if not paths:
    raise ConfigError(
      f"{workdir} holds no {DETAILS}/NUMBER/SET/{PREDICTIONS}, so its mistakes are not known; "
      f"evaluate it first: {own_command()} evaluate {quoted(workdir)}"
    )
  return paths


def mistakes(path: Path) -> tuple[list[Mistake], int]:
  """The mistakes in a predictions.csv, the most confident first, and the number of all images.

  Raises:
    ConfigError: an evaluation did not write this file.
    OSError: it cannot be read.
  """
  text = files.read_bytes(path, most=MAX_BYTES).decode(errors="replace")
  try:
    rows = list(texts.csv_rows(text))
    predictions = [Mistake(*row[:3], float(row[3])) for row in rows[1:]]
    if tuple(rows[0]) != COLUMNS:
      raise ValueError(f"its columns are {rows[0]}")
  except (ValueError, IndexError, TypeError, csv.Error) as error:
    raise ConfigError(f"{path} does not hold predictions of an evaluation ({error}).") from error
  wrong = [each for each in predictions if each.label != each.prediction]
  return sorted(wrong, key=_doubt), len(predictions)


def _doubt(mistake: Mistake) -> float:
  """Lower for more confident mistakes; NaN, from a diverged run, comes last."""
  if math.isnan(mistake.probability):
    return math.inf
  return -mistake.probability
