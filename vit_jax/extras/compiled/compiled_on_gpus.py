"""Recipes on 8 GPUs, most with the largest batch that fits: docs/gpus.csv and docs/gpus.md."""

from vit_jax.devices.chips import CHIPS
from vit_jax.extras.compiled import compiled_recipes, gpu_targets
from vit_jax.extras.compiled.gpus import TOPOLOGY
from vit_jax.extras.compiled.table import ROOT, Pair, Row, Table, name_of, number

PATH = ROOT / "docs" / "gpus.md"
TOPOLOGIES = ("a100-80:8", "h100:8", "h200:8", "b200:8")
RECIPES = (
  *(f"configs/vit_{name}_jft.py" for name in ("b32", "b16", "l16", "h14")),
  "configs/finetune.py:ViT-B/16,imagenet",  # 384 px
  "configs/finetune.py:ViT-L/16,cifar100",  # 384 px
  "configs/finetune.py:ViT-L/16,imagenet",  # 512 px
  "configs/finetune.py:ViT-H/14,imagenet",  # 518 px
)
# With their own batch, on one kind of GPU.
LATER = ("configs/simple_vit_s16_i1k.py", *compiled_recipes.LATER)
LATER_TOPOLOGY = "h100:8"
# The commands of the pages about GPUs and hosts, with their own batch too.
ON_PAGES = (
  *(("configs/vit_b16_i1k.py", topology) for topology in ("h100:1", "h100:8", "h100:2x8")),
  *(("configs/vit_l16_i1k.py", topology) for topology in ("h100:8", "h100:2x8")),
)
FIELDS = (
  *("recipe", "topology", "image_size", "devices", "global_batch", "settings", "fits"),
  *("peak_bytes", "usable_bytes", "hbm_bytes", "flops_per_device", "step_seconds_bound"),
  *("mfu_bound", "images_per_second_per_device_bound", "matmul_seconds_bound", "launches"),
  *("moved_bytes", "link_bytes", "link_seconds_bound", "made_from"),
)
HEADING = "## Recipes, compiled for 8 GPUs\n"


def pairs() -> list[Pair]:
  """The recipes to compile, each with a topology."""
  largest = [(recipe, topology) for recipe in RECIPES for topology in TOPOLOGIES]
  return [*largest, *((recipe, LATER_TOPOLOGY) for recipe in LATER), *ON_PAGES]


def flags(recipe: str, topology: str, rows: list[Row]) -> list[str]:
  """The flags to find the largest batch; the search begins in proportion to another GPU's."""
  if recipe not in RECIPES:
    return []
  known = [row for row in rows if row["recipe"] == name_of(recipe)]
  if not known:
    return ["--largest-batch"]
  other = known[-1]
  devices = int(other["devices"])
  each = int(other["global_batch"]) / devices * memory_of(topology) / memory_of(other["topology"])
  return ["--largest-batch", f"--config.batch_size={max(1, int(each)) * devices}"]


def memory_of(topology: str) -> int:
  """Bytes of a GPU's memory."""
  target = gpu_targets.TARGETS[TOPOLOGY.fullmatch(topology)[1]]
  return CHIPS[target.kind].hbm_bytes


def page(rows: list[Row]) -> str:
  """The page, whose last section has the rows."""
  text = ""
  if PATH.exists():
    text = PATH.read_text()
  return text.partition(HEADING)[0] + HEADING + part(rows)


def part(rows: list[Row]) -> str:
  """The last section of the page."""
  largest = [row for row in rows if f"configs/{row['recipe']}" in RECIPES]
  lines = [
    "",
    "`python tools/compile_table.py --platform=gpu` compiles the pairs of recipe and machine that",
    "are missing, and those whose step has changed. Nothing was run: images/s are those of a step",
    f"as fast as its bound, and a real one is slower. [gpus.csv](gpus.csv) has {len(rows)} of",
    f"{len(pairs())} pairs, with MFU.",
    "",
    "The largest batch a GPU that fits into the memory that JAX takes, and images/s a GPU:",
    "",
    *of_largest(largest),
    "",
    "Recipes with their own batch, on h100:8 unless named:",
    "",
    "| recipe | batch a GPU | peak, GiB | images/s a GPU |",
    "|---|---|---|---|",
  ]
  shown = {name_of(recipe) for recipe in (LATER[0], *(recipe for recipe, _ in ON_PAGES))}
  lines += [of_own_batch(row) for row in TABLE.sorted(rows) if row["recipe"] in shown]
  return "\n".join(lines) + "\n"


def of_largest(rows: list[Row]) -> list[str]:
  """A table with a line for each recipe and a column for each machine."""
  found = {(row["recipe"], row["topology"]): row for row in rows}
  sizes = {row["topology"]: number(row, "usable_bytes", 2**-30, 1) for row in rows}
  known = [topology for topology in TOPOLOGIES if topology in sizes]
  heads = [f"{topology}, {sizes[topology]} GiB" for topology in known]
  lines = [f"| recipe | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
  for name in map(name_of, RECIPES):
    its = [found.get((name, topology)) for topology in known]
    cells = [fastest(row) if row else "" for row in its]
    lines.append(f"| {name} | {' | '.join(cells)} |")
  return lines


def of_own_batch(row: Row) -> str:
  """The line of a recipe with its own batch."""
  machine = f", {row['topology']}" * (row["topology"] != LATER_TOPOLOGY)
  with_settings = f" ({row['settings']})" * bool(row["settings"])
  cells = (
    f"{row['recipe']}{machine}",
    f"{batch(row)}{with_settings}",
    number(row, "peak_bytes", 2**-30, 1),
    number(row, "images_per_second_per_device_bound", 1, 0),
  )
  return f"| {' | '.join(cells)} |"


def batch(row: Row) -> int:
  """Images a GPU."""
  return int(row["global_batch"]) // int(row["devices"])


def fastest(row: Row) -> str:
  """Of the largest batch: images a GPU, and images/s by the bound."""
  speed = number(row, "images_per_second_per_device_bound", 1, 0)
  return f"{batch(row)}: {speed}/s"


TABLE = Table(
  csv=ROOT / "docs" / "gpus.csv",
  pairs=pairs,
  fields=FIELDS,
  flags=flags,
  page=page,
  path=PATH,
)
