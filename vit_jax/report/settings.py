"""Tables of settings: those of the command line, and those that differ."""

from collections.abc import Iterator, Mapping, Sequence

from vit_jax.config import Config, to_dict
from vit_jax.process.text import shown
from vit_jax.report.document import Table
from vit_jax.report.run import RecordedRun

PREFIX = "config."


def tables(runs: Sequence[RecordedRun]) -> list[Table]:
  """What differs between the runs; of one run, what differs from its recipe and the defaults."""
  known = [run for run in runs if run.config is not None]
  columns = [flat(to_dict(run.config)) for run in known]
  if len(runs) > 1:
    rows = differing(columns)
    return [Table("Settings that differ", ["setting", *(run.name for run in known)], rows)]
  if not known:
    return []
  given = [key for key in on_command_line(runs[0]) if key in columns[0]]
  usual = flat(to_dict(Config()))
  return [
    Table(
      "Settings that the command line gives, in place of the recipe's",
      ["setting", "value"],
      [(key, [shown(columns[0][key])]) for key in given],
    ),
    Table(
      "All settings that differ from the defaults",
      ["setting", "value", "default"],
      [row for row in differing([columns[0], usual]) if row[0] in columns[0]],
      folded=True,
    ),
  ]


def flat(values: Mapping, prefix: str = "") -> dict[str, object]:
  """Nested settings by dotted name."""
  result = {}
  for key, value in values.items():
    if isinstance(value, Mapping):
      result |= flat(value, f"{prefix}{key}.")
    else:
      result[f"{prefix}{key}"] = value
  return result


def differing(columns: Sequence[Mapping[str, object]]) -> list[tuple[str, list[str]]]:
  """A row for each setting that is not the same in all columns; "" where a column lacks it."""
  keys = dict.fromkeys(key for column in columns for key in column)
  cells = {key: [shown(one[key]) if key in one else "" for one in columns] for key in keys}
  return [(key, row) for key, row in cells.items() if len({*row}) > 1]


def on_command_line(run: RecordedRun) -> Iterator[str]:
  """The settings that the command line of the newest start names, such as "batch_size"."""
  for argument in map(str, run.fact("command", list) or []):
    name = argument.partition("=")[0].lstrip("-")
    if argument.startswith("-") and name.startswith(PREFIX):
      yield name.removeprefix(PREFIX)
