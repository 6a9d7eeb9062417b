"""Recipes with the largest batch that fits on 8 GPUs: docs/gpus.csv, a part of docs/gpus.md."""

from compiled import gpu_targets
from compiled.gpus import TOPOLOGY
from compiled.table import ROOT, Row, Table, name_of, number, percent
from vit_jax.devices.chips import chip

PATH = ROOT / "docs" / "gpus.md"
TOPOLOGIES = ("a100-80:8", "h100:8", "h200:8", "b200:8")
RECIPES = (
  *(f"configs/vit_{name}_jft.py" for name in ("b32", "b16", "l16", "h14")),
  "configs/finetune.py:ViT-B/16,imagenet",  # 384 px
  "configs/finetune.py:ViT-L/16,cifar100",  # 384 px
  "configs/finetune.py:ViT-L/16,imagenet",  # 512 px
  "configs/finetune.py:ViT-H/14,imagenet",  # 518 px
)
FIELDS = (
  *("recipe", "topology", "image_size", "devices", "global_batch", "fits", "peak_bytes"),
  *("usable_bytes", "hbm_bytes", "flops_per_device", "step_seconds_bound", "mfu_bound"),
  *("images_per_second_per_device_bound", "matmul_seconds_bound", "launches", "moved_bytes"),
  *("link_bytes", "link_seconds_bound", "made_from"),
)
HEADING = "## Recipes, compiled for 8 GPUs\n"


def flags(recipe: str, topology: str, rows: list[Row]) -> list[str]:
  """The largest batch is looked for from where another GPU's memory has it."""
  of = lambda name: chip(gpu_targets.TARGETS[TOPOLOGY.fullmatch(name)[1]].kind).hbm_bytes
  known = [row for row in rows if row["recipe"] == name_of(recipe)]
  if not known:
    return ["--largest-batch"]
  other, devices = known[-1], int(known[-1]["devices"])
  each = int(other["global_batch"]) / devices * of(topology) / of(other["topology"])
  return ["--largest-batch", f"--config.batch_size={max(1, int(each)) * devices}"]


def page(rows: list[Row]) -> str:
  """The page, whose last part has the rows."""
  text = PATH.read_text() if PATH.exists() else ""
  return text.partition(HEADING)[0] + HEADING + part(rows)


def part(rows: list[Row]) -> str:
  """The last part of the page."""
  lines = [
    "",
    f"{len(rows)} of {len(RECIPES) * len(TOPOLOGIES)} pairs of a recipe and a machine.",
    "",
    "<!-- not run: hours -->",
    "```bash",
    "python tools/compile_table.py --platform=gpu",
    "```",
    "",
    "This command compiles each recipe with the largest batch that fits, a multiple of 8 images a",
    "GPU: the pairs that are missing, and those whose step has changed since. Nothing was run.",
    "The bound, images/s and MFU are of a step that is as fast as its bound: none is faster.",
    "[gpus.csv](gpus.csv) has every number.",
    "",
    "| recipe | px | on | batch a GPU | peak, GiB | of | bound, ms | images/s a GPU | MFU |",
    "|---|---|---|---|---|---|---|---|---|",
  ]
  for row in TABLE.sorted(rows):
    each = int(row["global_batch"]) // int(row["devices"])
    lines.append(
      f"| {row['recipe']} | {row['image_size']} | {row['topology']} | {each} "
      f"| {number(row, 'peak_bytes', 2**-30, 1)} | {number(row, 'usable_bytes', 2**-30, 1)} "
      f"| {number(row, 'step_seconds_bound', 1e3, 1)} "
      f"| {number(row, 'images_per_second_per_device_bound', 1, 0)} | {percent(row, 'mfu_bound')} |"
    )
  return "\n".join(lines) + "\n"


TABLE = Table(
  csv=ROOT / "docs" / "gpus.csv",
  topologies=TOPOLOGIES,
  recipes=lambda: list(RECIPES),
  fields=FIELDS,
  flags=flags,
  page=page,
  path=PATH,
)
