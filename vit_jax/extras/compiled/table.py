"""A table of recipes, each compiled for several topologies: a CSV file, and a page of its rows."""

import concurrent.futures
import csv
import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

from vit_jax.process import text as texts
from vit_jax.storage import files

ROOT = pathlib.Path(__file__).resolve().parents[3]
Row = dict[str, object]
Pair = tuple[str, str]  # a recipe as --config takes it, and a topology


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of compiled recipes.

  Attributes:
    csv: the file with its rows.
    pairs: recipes, each with a topology, in the order of the page.
    fields: of a row; "made_from" is that of `compilation.Program`.
    flags: of vit-jax compile-check for a recipe on a topology, with the rows so far.
    page: makes the text of a page from the rows.
    path: of that page.
    today: the name of the program that a row's recipe and settings give now.
  """

  csv: pathlib.Path
  pairs: Callable[[], list[Pair]]
  fields: tuple[str, ...]
  flags: Callable[[str, str, list[Row]], list[str]]
  page: Callable[[list[Row]], str]
  path: pathlib.Path
  today: Callable[[Row], str] = lambda row: name_today(row)

  def read(self) -> list[Row]:
    """The rows already in the table; fields that an older table did not have are empty."""
    text = ""
    if self.csv.exists():
      text = self.csv.read_text()
    rows = csv.DictReader(text.splitlines())
    return [{field: texts.csv_plain(row.get(field, "")) for field in self.fields} for row in rows]

  def write(self, rows: list[Row]):
    """Writes the rows and the page."""
    cells = ([row[field] for field in self.fields] for row in rows)
    files.write_csv(self.csv, [self.fields, *cells])
    files.write_text(self.path, self.page(rows))

  def missing(self, rows: list[Row], topologies: list[str], part: str) -> list[Pair]:
    """Pairs (recipe, topology) that `rows` lacks, then those whose program has changed.

    Args:
      rows: existing rows.
      topologies: those of the pairs.
      part: text that the names of the recipes contain.
    """
    pairs = [pair for pair in self.pairs() if part in pair[0] and pair[1] in topologies]
    pairs.sort(key=lambda pair: topologies.index(pair[1]))
    known = {_key(row): row for row in rows}
    absent = []
    old = []
    for recipe, topology in pairs:
      row = known.get((name_of(recipe), topology))
      if not row:
        absent.append((recipe, topology))
      elif self._is_old(row):
        old.append((recipe, topology))
    return absent + old

  def _is_old(self, row: Row) -> bool:
    """Whether the step of a row's recipe has changed, or the row does not say what it was."""
    return not row["made_from"] or self.today(row) != row["made_from"]

  def sorted(self, rows: list[Row]) -> list[Row]:
    """The rows in the order of the pairs."""
    order = [(name_of(recipe), topology) for recipe, topology in self.pairs()]
    listed = [row for row in rows if _key(row) in order]
    return sorted(listed, key=lambda row: order.index(_key(row)))

  def complete(self, rows: list[Row], wanted: list[Pair], *, jobs: int) -> Iterator[str]:
    """Compiles pairs, puts their rows into `rows` and the files, and yields each one's name.

    Args:
      rows: existing rows; a new row takes the place of that of its pair, and is the last one.
      wanted: pairs (recipe, topology) to compile; failures are reported on stderr.
      jobs: number of compilations at a time.
    """

    def make(pair: Pair) -> Row | None:
      return compiled(*pair, self.flags(*pair, rows))

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
      futures = [pool.submit(make, pair) for pair in wanted]
      for future in concurrent.futures.as_completed(futures):
        row = future.result()
        if row is not None:
          rows[:] = [other for other in rows if _key(other) != _key(row)]
          rows.append({field: row.get(field, "") for field in self.fields})
          self.write(rows)
          yield f"{row['recipe']} {row['topology']}"


def _key(row: Row) -> Pair:
  """The recipe and the topology of a row."""
  return row["recipe"], row["topology"]


def compiled(recipe: str, topology: str, flags: list[str]) -> Row | None:
  """One row: the recipe, with the settings that make it fit; None if compiling failed."""
  command = [sys.executable, "-m", "vit_jax.extras.commands.main", "compile-check"]
  command += [f"--config={recipe}", "--format=json", f"--topology={topology}", *flags]
  result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
  if not result.stdout.startswith("{"):
    print(f"{recipe} on {topology} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
    return None
  row = json.loads(result.stdout)
  remedy = row["remedy"] or {"settings": row["chosen"]}
  words = " ".join(f"{key}={value}" for key, value in remedy["settings"].items())
  return row | remedy | {"recipe": name_of(recipe), "settings": words}


def name_today(row: Row) -> str:
  """The name of the program that a row's recipe and settings give now."""
  from vit_jax import recipes
  from vit_jax.extras.compiled import compilation, platforms
  from vit_jax.extras.experiments.facts import decided

  settings = str(row.get("settings", "")).split()
  if "global_batch" in row:
    settings.append(f"batch_size={row['global_batch']}")
  flags = [f"--config.{setting}" for setting in settings]
  asked = recipes.resolve(f"configs/{row['recipe']}", flags)
  config = decided(asked)
  return compilation.step_name(config, platforms.devices_of(row["topology"]))


def name_of(recipe: str) -> str:
  """A recipe as the table names it."""
  return recipe.removeprefix("configs/")


def number(row: Row, key: str, scale: float, digits: int) -> str:
  """A number of a row in words; "" if the row has none."""
  if row[key] in ("", None):
    return ""
  return f"{float(row[key]) * scale:,.{digits}f}"


def percent(row: Row, key: str) -> str:
  """A share of a row in words; "" if the row has none."""
  if row[key] in ("", None):
    return ""
  return f"{number(row, key, 100, 0)}%"
