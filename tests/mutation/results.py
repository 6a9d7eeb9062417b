"""What happened to mutants: a file of JSON lines, to which each trial adds one."""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping

from tests.mutation.mutants import Mutant


@dataclasses.dataclass(frozen=True)
class Record:
  """The trial of a mutant.

  Attributes:
    key: of the mutant.
    killed: whether a test failed, or the tests took too long.
    tests: sum of the tests that it was tried with.
  """

  key: str
  killed: bool
  tests: str


def read(path: pathlib.Path) -> dict[str, Record]:
  """The last record of each mutant."""
  lines = path.read_text().splitlines() if path.exists() else []
  records = [Record(**json.loads(line)) for line in lines]
  return {record.key: record for record in records}


def add(path: pathlib.Path, record: Record):
  """Appends a record."""
  with path.open("a") as file:
    file.write(json.dumps(dataclasses.asdict(record)) + "\n")


def is_settled(record: Record | None, tests: str) -> bool:
  """Whether a mutant need not be tried: it was killed, or it survived these very tests."""
  return record is not None and (record.killed or record.tests == tests)


def sum_of(root: pathlib.Path, tests: list[str]) -> str:
  """Changes with the tests and the text of their files."""
  total = hashlib.sha256("\n".join(tests).encode())
  for file in sorted({test.partition("::")[0] for test in tests}):
    total.update((root / file).read_bytes())
  return total.hexdigest()[:16]


def table(mutants: Iterable[Mutant], records: Mapping[str, Record]) -> str:
  """Every survivor, then the score of each file and of all."""
  tried = [mutant for mutant in mutants if mutant.key in records]
  survivors = [mutant for mutant in tried if not records[mutant.key].killed]
  counts, left = collections.Counter(m.file for m in tried), collections.Counter()
  left.update(m.file for m in survivors)
  shown = [f"{m.file}:{m.line} survived\n{m.diff}" for m in survivors]
  rows = [score(file, count, left[file]) for file, count in counts.items()]
  return "\n".join([*shown, *rows, score("all", len(tried), len(survivors))])


def score(name: str, count: int, survived: int) -> str:
  """A line of the table."""
  share = (count - survived) / max(count, 1)
  return f"{name:42} {count:5} mutants {survived:4} survived {share:8.1%} killed"
