"""A table of recipes, each compiled for several topologies: a CSV file, and a page of its rows."""

import concurrent.futures
import csv
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

from vit_jax.storage import files

ROOT = pathlib.Path(__file__).resolve().parents[2]
Row = dict[str, object]


@dataclasses.dataclass(frozen=True)
class Table:
  """What one table has.

  Attributes:
    csv: its rows.
    topologies: for which each recipe is compiled.
    recipes: as --config takes them.
    fields: of a row.
    flags: of tools/compile_check.py for a recipe on a topology, with the rows so far.
    page: the text of a page from the rows.
    path: of that page.
  """

  csv: pathlib.Path
  topologies: tuple[str, ...]
  recipes: Callable[[], list[str]]
  fields: tuple[str, ...]
  flags: Callable[[str, str, list[Row]], list[str]]
  page: Callable[[list[Row]], str]
  path: pathlib.Path

  def read(self) -> list[Row]:
    """The rows already in the table."""
    return list(csv.DictReader(self.csv.read_text().splitlines())) if self.csv.exists() else []

  def write(self, rows: list[Row]):
    """Writes the rows and the page."""
    cells = ([row[field] for field in self.fields] for row in rows)
    files.write_csv(self.csv, [self.fields, *cells])
    files.write_text(self.path, self.page(rows))

  def missing(self, rows: list[Row], topologies: list[str], part: str) -> list[tuple[str, str]]:
    """Pairs (recipe, topology) that `rows` lacks, for the recipes whose names contain `part`."""
    done = {(row["recipe"], row["topology"]) for row in rows}
    return [
      (recipe, topology)
      for topology in topologies
      for recipe in self.recipes()
      if part in recipe and (name_of(recipe), topology) not in done
    ]

  def sorted(self, rows: list[Row]) -> list[Row]:
    """The rows in the order of the recipes, then of the topologies."""
    order = [name_of(recipe) for recipe in self.recipes()]
    place = lambda row: (order.index(row["recipe"]), self.topologies.index(row["topology"]))
    return sorted((row for row in rows if row["recipe"] in order), key=place)

  def complete(self, rows: list[Row], wanted: list[tuple[str, str]], *, jobs: int) -> Iterator[str]:
    """Compiles pairs, adds their rows to `rows` and to the documents, and yields each one's name.

    Args:
      rows: existing rows.
      wanted: pairs (recipe, topology) to compile; failures are reported on stderr.
      jobs: number of compilations at a time.
    """
    make = lambda pair: compiled(*pair, self.flags(*pair, rows))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
      futures = [pool.submit(make, pair) for pair in wanted]
      for future in concurrent.futures.as_completed(futures):
        row = future.result()
        if row is not None:
          rows.append({field: row.get(field, "") for field in self.fields})
          self.write(rows)
          yield f"{row['recipe']} {row['topology']}"


def compiled(recipe: str, topology: str, flags: list[str]) -> Row | None:
  """One row: the recipe as it is, or with settings that make it fit; None if compiling failed."""
  command = [sys.executable, "tools/compile_check.py", f"--config={recipe}", "--format=json"]
  command += [f"--topology={topology}", *flags]
  result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
  if not result.stdout.startswith("{"):
    print(f"{recipe} on {topology} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
    return None
  row = json.loads(result.stdout)
  remedy = row["remedy"] or {"settings": {}}
  words = " ".join(f"{key}={value}" for key, value in remedy["settings"].items())
  return row | remedy | {"recipe": name_of(recipe), "settings": words}


def name_of(recipe: str) -> str:
  """A recipe as the table names it."""
  return recipe.removeprefix("configs/")


def number(row: Row, key: str, scale: float, digits: int) -> str:
  """A number of a row in words; "" if the row has none."""
  return f"{float(row[key]) * scale:,.{digits}f}" if row[key] not in ("", None) else ""


def percent(row: Row, key: str) -> str:
  """A share of a row in words; "" if the row has none."""
  return number(row, key, 100, 0) + "%" * (row[key] not in ("", None))
