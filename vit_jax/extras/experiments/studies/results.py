"""The rows of results.csv: one for each cell and seed that is done, with the paper's number."""

import csv
import io
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from vit_jax import recipes
from vit_jax.config import ConfigError, RunError, recipe_file
from vit_jax.extras.experiments.studies import record
from vit_jax.extras.experiments.studies.jobs import FIRST, Cost, Job, Option, total, trials_of_all
from vit_jax.extras.experiments.studies.store import RunStore
from vit_jax.extras.experiments.studies.study import Cell, Stage, Study
from vit_jax.process import text as plain_text
from vit_jax.storage import files, metrics_log
from vit_jax.storage.base import raised_as
from vit_jax.storage.files import read_bytes
from vit_jax.storage.paths import Path

RESULTS = "results.csv"
TRIALS = "trials.csv"
CURVES = "curves.csv"
MAX_BYTES = 2**28


def rows(study: Study, store: RunStore, cost_of: Callable[[Job], Cost]) -> list[dict]:
  """All rows, in the order of the cells and seeds.

  Raises:
    RunError: a run did not write the metric.
  """
  published = in_paper(study)
  before = {line["run"]: line for line in read_rows(store.folder / RESULTS)}
  result = []
  for cell in study.cells:
    for seed in range(study.seeds):
      if one := row(study, cell, seed, store, cost_of, before):
        result.append(one | dict(paper=published.get(cell.label, "")))
  return result


def row(
  study: Study, cell: Cell, seed: int, store: RunStore, cost_of, before: Mapping[str, dict]
) -> dict | None:
  """One row; None if a run of the cell is not done with this seed. `before`: earlier rows by run.

  Steps, exaFLOPs and seconds are sums over the runs of the cell, without trials. The first run
  counts as pre-training. ExaFLOPs are None if parameters are frozen. The seconds cover training
  steps only: start-up, compilation, evaluations and saves are left out.
  """
  chain = [Job(stage, seed) for stage in cell.stage.chain()]
  metrics = [store.done(job) for job in chain]
  if None in metrics:
    return None
  runs = [store.run(job) for job in chain]
  folders = [run.folder for run in runs]
  kinds = {recipes.resolve(run.recipe, run.overrides).objective.kind for run in runs}
  names = own_names([job.stage.name for job in chain])
  options = [store.chosen(job.stage) for job in chain]
  settings = {}
  for name, job, option in zip(names, chain, options, strict=True):
    settings[name] = {**job.stage.settings, **option}
  if store.overrides:
    settings["all"] = store.overrides
  exaflops = [cost_of(job).exaflops(line["step"]) for job, line in zip(chain, metrics, strict=True)]
  return dict(
    cell=cell.label,
    **texts(cell),
    seed=seed,
    score=store.score(chain[-1], study.score_of(cell)),
    paper="",
    chosen=json.dumps(chosen(names, options)),
    steps=sum(line["step"] for line in metrics),
    exaflops=total(exaflops),
    pretraining_exaflops=exaflops[0],
    seconds=round(sum(map(seconds, folders)), 1),
    settings=json.dumps(settings),
    run=folders[-1].name,
    **record.origin(folders, kinds, before.get(folders[-1].name, {})),
    **{key: value for key, value in metrics[-1].items() if "/" in key},
  )


def texts(cell: Cell) -> dict[str, str]:
  """The factors of a cell as text; CSV would leave None empty."""
  return {factor: str(value) for factor, value in cell.factors.items()}


def own_names(names: list[str]) -> list[str]:
  """The names of the stages of a cell, with a number for repeated ones: "training 2".

  "all" is reserved for the settings of the command line.
  """
  taken = ["all"]
  for name in names:
    numbered = [name, *(f"{name} {number}" for number in range(2, len(names) + 2))]
    taken.append(next(one for one in numbered if one not in taken))
  return taken[1:]


def chosen(names: list[str], options: list[Mapping[str, Any]]) -> dict[str, Any]:
  """The chosen settings; by stage if two stages chose the same setting."""
  merged = {key: value for option in options for key, value in option.items()}
  if len(merged) == sum(map(len, options)):
    return merged
  return {name: option for name, option in zip(names, options, strict=True) if option}


def trials(study: Study, store: RunStore) -> list[dict]:
  """The rows of trials.csv: one for each candidate that was tried; cells may share them."""
  choices = {}
  for cell in study.cells:
    for stage in cell.stage.chain():
      if stage.has_trials():
        choices.setdefault(repr(trials_of_all(stage)), []).append((cell.label, stage))
  result = []
  stages = {stage.name for sharing in choices.values() for _, stage in sharing}
  for sharing in choices.values():
    stage = sharing[0][1]
    origin = dict(
      cell=in_short([label for label, _ in sharing], len(study.cells), "cells"),
      stage=in_short([each.name for _, each in sharing], len(stages), "stages"),
    )
    scores = store.trial_scores(stage)
    for option, score in zip(stage.choice.options, scores, strict=True):
      if score is not None:
        result.append(origin | _trial(stage, option, score, store.chosen(stage)))
  return result


def in_short(names: list[str], most: int, what: str) -> str:
  """Different names after one another; "all WHAT" if there are `most` of them, and several."""
  names = list(dict.fromkeys(names))
  if len(names) == most > 1:
    return f"all {what}"
  return ", ".join(names)


def _trial(stage: Stage, option: Option, score: float, chosen: Option | None) -> dict:
  return dict(
    candidate=", ".join(f"{key}={value}" for key, value in option.items()) or "the recipe's",
    seed=FIRST,
    metric=stage.choice.score.metric,
    score=score,
    chosen="yes" if option == chosen else "",
    paper="",
    **option,
  )


def curves(study: Study, store: RunStore) -> list[dict]:
  """The rows of curves.csv: one for each evaluation of the last run of each cell and seed."""
  published = in_paper(study)
  return [
    dict(cell=cell.label, **texts(cell), seed=seed, paper=published.get(cell.label, "")) | point
    for cell in study.cells
    for seed in range(study.seeds)
    for point in curve(store, Job(cell.stage, seed), study.score_of(cell).metric)
  ]


def curve(store: RunStore, job: Job, metric: str) -> list[dict]:
  """The step, epoch and score of each evaluation of a run; [] if the run is not done."""
  if store.done(job) is None:
    return []
  lines = list(map(plain_text.with_numbers, metrics_log.read_lines(store.run(job).folder)))
  epochs = [line["data/epoch"] / line["step"] for line in lines if line.get("data/epoch")]
  return [
    dict(step=line["step"], epoch=round(line["step"] * epochs[-1], 4), score=line[metric])
    for line in lines
    if metric in line
  ]


def seconds(folder: Path) -> float:
  """Seconds in the training steps of a run, over all of its starts."""
  spent = 0.0
  before = 0
  for line in metrics_log.read_lines(folder):
    if "step_seconds" in line:
      spent += (line["step"] - before) * float(line["step_seconds"])
      before = line["step"]
  return spent


def in_paper(study: Study) -> dict[str, float]:
  """The paper's number of each cell by label; cells without one are left out.

  Raises:
    ConfigError: the file cannot be read, lacks the column, or fits a cell twice.
  """
  if study.paper is None:
    return {}
  try:
    table = table_of(study.paper.file)
  except RunError as error:
    raise ConfigError(str(error)) from error
  if not table or study.paper.column not in table[0]:
    raise ConfigError(f"{study.paper.file} is missing or has no column {study.paper.column!r}.")
  by_label = {cell.label: of_cell(study, cell, table) for cell in study.cells}
  return {label: value for label, value in by_label.items() if value is not None}


def table_of(file: str) -> list[dict[str, str]]:
  """The rows of a table of the paper, of the current folder or the package; as `read_rows`."""
  return read_rows(pathlib.Path(recipe_file.here_or_installed(file)))


def of_cell(study: Study, cell: Cell, table: list[dict[str, str]]) -> float | None:
  """The paper's number in the one row that has the factors of a cell."""
  told = {**cell.factors, **study.paper.rows}
  shared = [factor for factor in told if factor in table[0]]
  fitting = [line for line in table if all(line[key] == str(told[key]) for key in shared)]
  if len(fitting) > 1 or not shared:
    raise ConfigError(
      f"{study.paper.file} has {len(fitting)} rows for the cell {cell.label!r}; give it a factor "
      f"that tells them apart, one of {', '.join(table[0])}."
    )
  if not fitting or not fitting[0][study.paper.column]:
    return None
  text = fitting[0][study.paper.column]
  try:
    return float(text)
  except ValueError as error:
    raise ConfigError(f"{study.paper.file} holds {text!r}, which is no number.") from error


def deviation(values: list[float]) -> float | None:
  """The standard deviation of a sample; None for one value, NaN if a value is not finite."""
  if len(values) < 2:
    return None
  if not all(map(math.isfinite, values)):
    return math.nan
  return statistics.stdev(values)


def write(path: Path, some: list[dict]):
  """Writes rows as CSV, with empty cells for columns that a row lacks.

  Raises:
    OSError: the file cannot be written; an earlier one stays as it was.
  """
  columns = list(dict.fromkeys(key for one in some for key in one))
  files.write_csv(path, [columns, *([one.get(key, "") for key in columns] for one in some)])


def read_rows(path: Path) -> list[dict[str, str]]:
  """The rows of a CSV file, [] if it does not exist.

  Raises:
    RunError: it is damaged.
  """
  if not files.exists(path):
    return []
  words = lambda error: f"{path} cannot be read ({error}); move it away, and start again."
  with raised_as(RunError, words, OSError, ValueError, csv.Error):
    text = read_bytes(path, most=MAX_BYTES).decode()
    lines = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    for number, line in enumerate(lines, 1):
      if None in line or None in line.values():
        raise ValueError(f"row {number} below the head has too many or too few cells")
    return [
      {plain_text.csv_plain(key): plain_text.csv_plain(line[key]) for key in line} for line in lines
    ]
