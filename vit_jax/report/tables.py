"""Tables with a column for each run."""

from collections.abc import Callable, Iterable, Sequence

from vit_jax.report.document import Table, TableCell
from vit_jax.report.run import RecordedRun

Facts = Callable[[RecordedRun], Iterable[tuple[str, TableCell | str]]]


def side_by_side(caption: str, runs: Sequence[RecordedRun], facts: Facts) -> Table:
  """A row for each fact that any run has, in the order in which they come first."""
  columns = [{name: cell for name, cell in facts(run) if cell} for run in runs]
  names = list(dict.fromkeys(name for column in columns for name in column))
  rows = [(name, [column.get(name, "") for column in columns]) for name in names]
  head = ["", "value"] if len(runs) == 1 else ["", *(run.name for run in runs)]
  return Table(caption, head, rows)
