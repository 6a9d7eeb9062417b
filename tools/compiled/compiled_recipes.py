"""The recipes of Tables 3, 4 and 6, compiled for several TPU slices: docs/compiled.{csv,md}."""

import concurrent.futures
import csv
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from vit_jax.storage import files

ROOT = pathlib.Path(__file__).resolve().parents[2]
CSV = ROOT / "docs" / "compiled.csv"

TOPOLOGIES = ("v3:16x16", "v3:4x4", "v4:4x4x4", "v5e:16x16", "v6e:16x16")
# For each model of Table 3, ImageNet, which has the largest head and images. The other tasks have
# 384 px (ViT-H/14: 378) and smaller heads, so Table 2's models are listed with CIFAR-100 too.
FINE_TUNED = (
  *(f"ViT-{name},imagenet" for name in ("B/32", "B/16", "L/32", "L/16", "H/14")),
  "ViT-L/16,cifar100",
  "ViT-H/14,cifar100",
  *(f"R{name},imagenet" for name in ("50x1", "50x2", "101x1", "152x1", "152x2")),
  *(f"R50x1+ViT-{name},imagenet" for name in ("B/32", "B/16", "L/32", "L/16")),
)
FIELDS = (
  "recipe",
  "topology",
  "devices",
  "settings",
  "fits",
  "peak_bytes",
  "hbm_bytes",
  "step_seconds_estimate",
  "mfu",
  "core_days",
  "paper_core_days",
)


# For recipes with two lengths, which differ only in days, the length whose days are in Table 2.
LENGTHS = {"vit_l16_jft.py": ":14", "vit_l16_i21k.py": ":90"}


# Figure 8's shapes; and ViT-H/14 on ImageNet-21k, the step of vit_h14_jft.py with dropout.
LEFT_OUT = ("vit_shape_jft.py", "vit_h14_i21k.py")


def recipes() -> list[str]:
  """The recipes that are compiled, as --config takes them, the pre-training ones first."""
  paths = sorted((ROOT / "configs").glob("*_*1k.py")) + sorted((ROOT / "configs").glob("*_jft.py"))
  names = [path.name for path in paths if path.name not in LEFT_OUT]
  return [f"configs/{name}{LENGTHS.get(name, '')}" for name in names] + [
    f"configs/finetune.py:{argument}" for argument in FINE_TUNED
  ]


def compiled(recipe: str, topology: str) -> dict | None:
  """One row: the recipe as it is, or with settings that make it fit; None if compiling failed."""
  command = [sys.executable, "tools/compile_check.py", f"--config={recipe}", "--format=json"]
  command += [f"--topology={topology}"]
  result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
  if not result.stdout.startswith("{"):
    print(f"{recipe} on {topology} failed:\n{result.stderr[-2000:]}", file=sys.stderr)
    return None
  row = json.loads(result.stdout)
  remedy = row["remedy"] or {"settings": {}}
  words = " ".join(f"{key}={value}" for key, value in remedy["settings"].items())
  return row | remedy | {"recipe": recipe.removeprefix("configs/"), "settings": words}


def table(rows: list[dict]) -> str:
  """The rows as a page."""
  order = {recipe.removeprefix("configs/"): i for i, recipe in enumerate(recipes())}
  rows = sorted(
    rows, key=lambda row: (order.get(row["recipe"], 999), TOPOLOGIES.index(row["topology"]))
  )
  lines = [
    "# Recipes, compiled for TPU slices",
    "",
    f"{len(rows)} of {len(order) * len(TOPOLOGIES)} pairs of a recipe and a slice.",
    "",
    "```",
    "PYTHONPATH=.libtpu python tools/compile_table.py",
    "```",
    "",
    "compiles the training step of the recipes of Tables 3, 4 and 6 and of masked patches with the",
    "real TPU compiler. Nothing here has been run. [compiled.csv](compiled.csv) has every figure.",
    "",
    "- Memory is per device: one of the two cores of a chip on v3, a whole chip elsewhere.",
    "- The time of a step comes from the cycles that the compiler counts for each operation,",
    "  without communication; MFU and device-days follow from it.",
    "- The paper's days, from its Table 2, are days of v3 cores.",
    "- From Table 4, each model but R200x3 is listed with ImageNet, and the models of Table 2 also",
    "  with CIFAR-100. The other tasks have the same resolution; they differ in the number of",
    "  steps and in the head, which is smaller than ImageNet's.",
    "",
    "| recipe | slice | devices | with | peak, GiB | of | step, ms | MFU | device-days | paper's |",
    "|---|---|---|---|---|---|---|---|---|---|",
  ]
  for row in rows:
    number = lambda key, scale, digits, row=row: (
      f"{float(row[key]) * scale:,.{digits}f}" if row[key] not in ("", None) else ""
    )
    fits = str(row["fits"]) == "True"
    lines.append(
      f"| {row['recipe']} | {row['topology']} | {row['devices']} | {row['settings']} "
      f"| {number('peak_bytes', 2**-30, 1)}{'' if fits else ' (does not fit)'} "
      f"| {number('hbm_bytes', 2**-30, 0)} | {number('step_seconds_estimate', 1e3, 1)} "
      f"| {number('mfu', 100, 0)}{'%' if row['mfu'] not in ('', None) else ''} "
      f"| {number('core_days', 1, 1)} | {number('paper_core_days', 1, 0)} |"
    )
  return "\n".join(lines) + "\n"


def read() -> list[dict]:
  """The rows already in the table."""
  return list(csv.DictReader(CSV.read_text().splitlines())) if CSV.exists() else []


def missing(rows: list[dict], topologies: list[str], part: str) -> list[tuple[str, str]]:
  """Pairs (recipe, topology) that `rows` lacks, for the recipes whose names contain `part`."""
  done = {(row["recipe"], row["topology"]) for row in rows}
  return [
    (recipe, topology)
    for topology in topologies
    for recipe in recipes()
    if part in recipe and (recipe.removeprefix("configs/"), topology) not in done
  ]


def complete(rows: list[dict], wanted: list[tuple[str, str]], *, jobs: int) -> Iterator[str]:
  """Compiles pairs, adds their rows to `rows` and to the documents, and yields the name of each.

  Args:
    rows: existing rows.
    wanted: pairs (recipe, topology) to compile; failures are reported on stderr.
    jobs: number of compilations at a time.
  """
  with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
    futures = [pool.submit(compiled, *one) for one in wanted]
    for future in concurrent.futures.as_completed(futures):
      row = future.result()
      if row is not None:
        rows.append({field: row.get(field, "") for field in FIELDS})
        write(rows)
        yield f"{row['recipe']} {row['topology']}"


def write(rows: list[dict]):
  """Writes docs/compiled.csv and docs/compiled.md."""
  files.write_csv(CSV, [FIELDS, *([row[field] for field in FIELDS] for row in rows)])
  files.write_text(CSV.with_suffix(".md"), table(rows))
