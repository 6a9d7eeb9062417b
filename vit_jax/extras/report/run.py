"""A run as its workdir records it; missing and damaged files are left out."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from vit_jax.config import Config, ConfigError, recorded
from vit_jax.evaluation import catalogue, results
from vit_jax.extras.report import scored_set
from vit_jax.extras.report.document import Table, TableCell
from vit_jax.extras.report.scored_set import ScoredSet
from vit_jax.recipes import cost
from vit_jax.storage import files, metrics_log, workdir
from vit_jax.storage.paths import Path


@dataclasses.dataclass(frozen=True)
class RecordedRun:
  """A run.

  Attributes:
    folder: the workdir.
    name: the run's unique name in the report.
    config: the settings; None if they are not known.
    starts: the facts of every start, in order.
    lines: the lines of metrics.jsonl, in order.
    sets: the evaluations with details.
    notes: sentences about files that could not be read.
  """

  folder: Path
  name: str
  config: Config | None
  starts: Sequence[dict]
  lines: Sequence[dict]
  sets: Sequence[ScoredSet]
  notes: Sequence[str]

  @property
  def step(self) -> int:
    """The last step in metrics.jsonl; 0 if there is none."""
    return max((line["step"] for line in self.lines), default=0)

  @property
  def averaged(self) -> bool:
    """Whether the moving average of the parameters was evaluated."""
    return any(line.get(catalogue.AVERAGE) for line in self.lines)

  def fact(self, key: str, kind: type):
    """A fact of the newest start; None if it is missing or not of this type."""
    if not self.starts:
      return None
    value = self.starts[-1].get(key)
    return value if isinstance(value, kind) else None

  def changes(self) -> list[tuple[int, list[str]]]:
    """(step, settings changed when the run resumed after that step).

    If the run was killed before its next checkpoint and resumed from the same step again, only the
    last of these starts counts.
    """
    kept = {}
    for start in self.starts:
      step = start.get("step")
      changed = start.get("changed")
      if isinstance(step, int) and isinstance(changed, list):
        kept = {other: words for other, words in kept.items() if other < step}
        kept[step] = list(map(str, changed))
    return [(step, changed) for step, changed in kept.items() if changed]


def read_all(folders: Sequence[Path]) -> list[RecordedRun]:
  """The runs of workdirs.

  Raises:
    ConfigError: a folder is not a workdir, or is given twice.
  """
  for folder in folders:
    check(folder)
  if len({files.real(folder) for folder in folders}) < len(folders):
    raise ConfigError("a workdir is given twice; give each once.")
  return [read_run(folder, name) for folder, name in zip(folders, names(folders), strict=True)]


def check(folder: Path):
  """Checks that a folder is a workdir.

  Raises:
    ConfigError: it is not.
  """
  if not files.is_folder(folder):
    raise ConfigError(f"{folder} is no folder; give the workdir of a run.")
  if not any(files.exists(folder / file) for file in (workdir.CONFIG, metrics_log.METRICS)):
    raise ConfigError(
      f"{folder} is not the workdir of a run: it has neither {workdir.CONFIG} nor "
      f"{metrics_log.METRICS}."
    )
  workdir.check_links(folder)


def names(folders: Sequence[Path]) -> list[str]:
  """The names of folders, or their whole paths if two folders have the same name."""
  last = [files.real(folder).name for folder in folders]
  if len({*last}) < len(last):
    return [str(folder) for folder in folders]
  return last


def read_run(folder: Path, name: str) -> RecordedRun:
  """The run of a workdir."""
  notes = []

  def read_or(default, read: Callable, note: str):
    try:
      return read(folder)
    except (OSError, ValueError, ConfigError, metrics_log.UnreadableError) as error:
      notes.append(f"{note}: {error}")
      return default

  config = read_or(None, settings, "The settings are left out")
  parsed = read_or([], metrics, f"{metrics_log.METRICS} cannot be read")
  lines = [line for line in parsed if line is not None]
  if damaged := len(parsed) - len(lines):
    notes.append(f"{damaged:,} damaged line(s) of {metrics_log.METRICS} are left out.")
  begun = read_or([], workdir.read_starts, f"{workdir.STARTS} cannot be read")
  sets, unreadable = scored_set.read_all(folder)
  notes += results.unscored_in_words(lines)
  return RecordedRun(folder, name, config, begun, lines, sets, [*notes, *unreadable])


def settings(folder: Path) -> Config | None:
  """The settings; None if the run recorded none.

  Raises:
    ConfigError, ValueError: they cannot be read, or describe no valid model.
  """
  if not files.exists(folder / workdir.CONFIG):
    return None
  config = recorded.read_config(folder)
  cost.forward_macs(config)
  return config


def metrics(folder: Path) -> list[dict | None]:
  """The lines of metrics.jsonl; None for each damaged line."""
  return [values for _, values in metrics_log.lines_of(folder / metrics_log.METRICS)]


def side_by_side(
  caption: str,
  runs: Sequence[RecordedRun],
  facts: Callable[[RecordedRun], Iterable[tuple[str, TableCell | str]]],
) -> Table:
  """A table with a column for each run, and a row for each fact that any run has."""
  columns = [{name: cell for name, cell in facts(run) if cell} for run in runs]
  names = dict.fromkeys(name for column in columns for name in column)
  rows = [(name, [column.get(name, "") for column in columns]) for name in names]
  titles = ["value"]
  if len(runs) != 1:
    titles = [run.name for run in runs]
  return Table(caption, ["", *titles], rows)
