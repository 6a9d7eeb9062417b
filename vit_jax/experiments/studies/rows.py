"""The rows of results.csv: one for each cell and seed that is done."""

import csv
import io
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from vit_jax.config import RunError
from vit_jax.config.reading import read_bytes
from vit_jax.experiments.studies import paper
from vit_jax.experiments.studies.cost import Cost
from vit_jax.experiments.studies.jobs import Job
from vit_jax.experiments.studies.ledger import Ledger
from vit_jax.experiments.studies.study import Cell, Study
from vit_jax.storage import files, metrics_log

MAX_BYTES = 2**28


def rows(study: Study, ledger: Ledger, cost_of: Callable[[Job], Cost]) -> list[dict]:
  """All rows, in the order of the cells and seeds.

  Raises:
    RunError: a run did not write the metric.
  """
  published = paper.figures(study)
  found = (
    row(study, cell, seed, ledger, cost_of) for cell in study.cells for seed in range(study.seeds)
  )
  return [one | dict(paper=published.get(one["cell"], "")) for one in found if one]


def row(study: Study, cell: Cell, seed: int, ledger: Ledger, cost_of) -> dict | None:
  """One row; None if a run of the cell is not done with this seed.

  Steps, exaFLOPs and seconds are sums over the runs of the cell, without trials. The exaFLOPs of
  pre-training are those of the first run. The seconds are those of training steps: start-up,
  compilation, evaluations and saves are left out.
  """
  last = Job(cell.stage, seed)
  score = ledger.score(last, study.score)
  chain = [Job(stage, seed) for stage in cell.stage.chain()]
  if score is None or any(ledger.done(job) is None for job in chain):
    return None
  steps = [ledger.done(job)["step"] for job in chain]
  folders = [ledger.run(job).folder for job in chain]
  names = own_names([job.stage.name for job in chain])
  options = [ledger.chosen(job.stage) for job in chain]
  settings = [{**t.stage.settings, **option} for t, option in zip(chain, options, strict=True)]
  named = dict(zip(names, settings, strict=True))
  exaflops = [cost_of(job).exaflops(n) for job, n in zip(chain, steps, strict=True)]
  figures = {key: value for key, value in ledger.done(last).items() if "/" in key}
  return dict(
    cell=cell.label,
    **texts(cell),
    seed=seed,
    score=score,
    paper="",
    chosen=json.dumps(chosen(names, options)),
    steps=sum(steps),
    exaflops=sum(exaflops),
    pretraining_exaflops=exaflops[0],
    seconds=round(sum(map(seconds, folders)), 1),
    settings=json.dumps(named | ({"all": ledger.overrides} if ledger.overrides else {})),
    run=folders[-1].name,
    **figures,
  )


def texts(cell: Cell) -> dict[str, str]:
  """The factors of a cell as text; CSV would leave None empty."""
  return {factor: str(value) for factor, value in cell.factors.items()}


def own_names(names: list[str]) -> list[str]:
  """The names of the stages of a cell, with a number where one comes again: "training 2".

  "all" is taken by the settings of the command line.
  """
  found = ["all"]
  for name in names:
    count = next(n for n in range(1, len(names) + 2) if numbered(name, n) not in found)
    found.append(numbered(name, count))
  return found[1:]


def numbered(name: str, number: int) -> str:
  """A name with a number; the first one has none."""
  return f"{name} {number}" if number > 1 else name


def chosen(names: list[str], options: list[Mapping[str, Any]]) -> dict[str, Any]:
  """The chosen settings; those of each stage apart where two stages chose the same one."""
  merged = {key: value for option in options for key, value in option.items()}
  if len(merged) == sum(map(len, options)):
    return merged
  return {name: option for name, option in zip(names, options, strict=True) if option}


def curves(study: Study, ledger: Ledger) -> list[dict]:
  """The rows of curves.csv: one for each evaluation of the last run of each cell and seed."""
  published = paper.figures(study)
  return [
    dict(cell=cell.label, **texts(cell), seed=seed, paper=published.get(cell.label, "")) | point
    for cell in study.cells
    for seed in range(study.seeds)
    for point in curve(ledger, Job(cell.stage, seed), study.score.metric)
  ]


def curve(ledger: Ledger, job: Job, metric: str) -> list[dict]:
  """The step, epoch and score of each evaluation of a run; [] if the run is not done."""
  if ledger.done(job) is None:
    return []
  lines = list(metrics_log.read(ledger.run(job).folder))
  known = [line["data/epoch"] / line["step"] for line in lines if line.get("data/epoch")]
  return [
    dict(step=line["step"], epoch=round(line["step"] * known[-1], 4), score=line[metric])
    for line in lines
    if metric in line
  ]


def seconds(folder: pathlib.Path) -> float:
  """Time spent in the training steps of a run, over all times that it was started."""
  spent, before = 0.0, 0
  for line in metrics_log.read(folder):
    if "step_seconds" in line:
      spent += (line["step"] - before) * float(line["step_seconds"])
      before = line["step"]
  return spent


def write(path: pathlib.Path, some: list[dict]):
  """Writes rows as CSV. A row without a column leaves it empty.

  Raises:
    OSError: the file cannot be written; an earlier one stays as it was.
  """
  columns = list(dict.fromkeys(key for one in some for key in one))
  files.write_csv(path, [columns, *([one.get(key, "") for key in columns] for one in some)])


def read(path: pathlib.Path) -> list[dict[str, str]]:
  """The rows of a CSV file, [] if it does not exist.

  Raises:
    RunError: it is damaged.
  """
  if not path.exists():
    return []
  try:
    text = read_bytes(path, most=MAX_BYTES).decode()
    found = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    for number, row in enumerate(found, 1):
      if None in row or None in row.values():
        raise ValueError(f"row {number} below the head has too many or too few cells")
    return found
  except (OSError, ValueError, csv.Error) as error:
    raise RunError(f"{path} cannot be read ({error}); move it away, and start again.") from error
