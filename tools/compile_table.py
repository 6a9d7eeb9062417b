"""Compiles every recipe of Tables 3 and 4 for several TPU slices: docs/compiled.{csv,md}.

python tools/compile_table.py [--only=vit_h14] [--topologies=v3:16x16,v5e:16x16] [--jobs=2]

Each row is what tools/compile_check.py says; what docs/compiled.csv holds already is not compiled
again: remove its line, or the file, to have it made anew. Hours for all rows on two cores. With
LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=thp:always,dirty_decay_ms:60000 (Debian: libjemalloc2) one
row, ViT-B/32 for v4:4x4x4, took 93 s of CPU time in place of 144 s, and came out the same.
"""

import argparse
import concurrent.futures
import csv
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from tools.bounds import whole
from vit_jax.process import console

TOPOLOGIES = ("v3:16x16", "v3:4x4", "v4:4x4x4", "v5e:16x16", "v6e:16x16")
# Of Table 4 the program with the largest head and images of each model: ImageNet. The other tasks
# are at 384 px (ViT-H/14: 378) with smaller heads; Table 2's models are therefore here so too.
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


# Of two lengths, which differ in days alone, the one whose days Table 2 has.
LENGTHS = {"vit_l16_jft.py": ":14", "vit_l16_i21k.py": ":90"}


def recipes() -> list[str]:
  """Every recipe of Tables 3 and 4, as --config takes it, the pre-training ones first."""
  paths = sorted((ROOT / "configs").glob("*_*1k.py")) + sorted((ROOT / "configs").glob("*_jft.py"))
  names = [path.name for path in paths if path.name != "vit_shape_jft.py"]
  return [f"configs/{name}{LENGTHS.get(name, '')}" for name in names] + [
    f"configs/finetune.py:{argument}" for argument in FINE_TUNED
  ]


def compiled(recipe: str, topology: str) -> dict | None:
  """One row: of the recipe as it is, else with the settings that make it fit; None: it failed."""
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
    "compiles the training step of every recipe with the real TPU compiler. Nothing here has been",
    "run. Every figure is in [compiled.csv](compiled.csv).",
    "",
    "- Memory is of one device: one of the two cores of a chip on v3, a chip elsewhere.",
    "- The time of a step comes from the cycles that the compiler counts for each operation,",
    "  without communication; MFU and device-days follow from it.",
    "- The paper's days, from its Table 2, are of v3 cores.",
    "- Of Table 4 the table has each model on ImageNet, and those of Table 2 on CIFAR-100 too. The",
    "  other tasks have the same resolution; they differ in the number of steps and in the head,",
    "  which is smaller than ImageNet's.",
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


def main():
  """Compiles what is missing and writes both files after each row."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--only", default="", help="recipes whose name holds this text")
  parser.add_argument("--topologies", default=",".join(TOPOLOGIES), help="separated by commas")
  parser.add_argument("--jobs", type=whole(1, 1024), default=1, help="compilations at a time")
  args = parser.parse_args()
  topologies = args.topologies.split(",")
  unknown = set(topologies) - set(TOPOLOGIES)
  if unknown:
    parser.error(f"--topologies: {', '.join(sorted(unknown))} is none of {', '.join(TOPOLOGIES)}")
  if not any(args.only in recipe for recipe in recipes()):
    parser.error(
      f"--only={args.only}: no recipe's name holds it; the names: {', '.join(recipes())}"
    )
  path = ROOT / "docs" / "compiled.csv"
  rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
  done = {(row["recipe"], row["topology"]) for row in rows}
  wanted = [
    (recipe, topology)
    for topology in topologies
    for recipe in recipes()
    if args.only in recipe and (recipe.removeprefix("configs/"), topology) not in done
  ]
  failed = 0
  with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
    futures = [pool.submit(compiled, *one) for one in wanted]
    for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
      row = future.result()
      if row is None:
        failed += 1
        continue
      rows.append({field: row.get(field, "") for field in FIELDS})
      unfinished = path.with_suffix(".tmp")
      with unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
      unfinished.replace(path)
      path.with_suffix(".md").write_text(table(rows), encoding="utf-8")
      print(f"{count}/{len(wanted)} {row['recipe']} {row['topology']}", flush=True)
  if failed:
    sys.exit(f"{failed} of {len(wanted)} rows are missing: see above.")


if __name__ == "__main__":
  console.of_tool()
  main()
