"""Recipes on 8 GPUs, most with the largest batch that fits: docs/gpus.csv and docs/gpus.md."""

from vit_jax.devices.chips import CHIPS
from vit_jax.extras.compiled import compiled_recipes, gpu_targets
from vit_jax.extras.compiled.gpus import TOPOLOGY
from vit_jax.extras.compiled.table import ROOT, Pair, Row, Table, name_of, number, percent

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
    f"{len(rows)} of the {len(pairs())} planned pairs of recipe and machine have been compiled.",
    "",
    "<!-- not run: hours -->",
    "```bash",
    "python tools/compile_table.py --platform=gpu",
    "```",
    "",
    "This command compiles the pairs that are missing, and those whose step has changed since.",
    "Nothing was run: images/s and MFU are those of a step as fast as its bound, and a real one is",
    "slower. [gpus.csv](gpus.csv) has every number.",
    "",
    "The largest batch a GPU that fits into what JAX takes of its memory, images/s a GPU, and MFU:",
    "",
    *compiled_recipes.by_slice(largest, RECIPES, TOPOLOGIES, fastest, "usable_bytes"),
    "",
    "Recipes with their own batch:",
    "",
    "| recipe | on | batch a GPU | peak, GiB | images/s a GPU | MFU |",
    "|---|---|---|---|---|---|",
  ]
  for row in TABLE.sorted(rows):
    if row in largest:
      continue
    with_settings = f" ({row['settings']})" * bool(row["settings"])
    lines.append(
      f"| {row['recipe']} | {row['topology']} | {batch(row)}{with_settings} "
      f"| {number(row, 'peak_bytes', 2**-30, 1)} "
      f"| {number(row, 'images_per_second_per_device_bound', 1, 0)} | {percent(row, 'mfu_bound')} |"
    )
  return "\n".join(lines) + "\n"


def batch(row: Row) -> int:
  """Images a GPU."""
  return int(row["global_batch"]) // int(row["devices"])


def fastest(row: Row) -> str:
  """Of the largest batch: images a GPU, images/s by the bound, and MFU."""
  speed = number(row, "images_per_second_per_device_bound", 1, 0)
  return f"{batch(row)}: {speed}/s ({percent(row, 'mfu_bound')})"


TABLE = Table(
  csv=ROOT / "docs" / "gpus.csv",
  pairs=pairs,
  fields=FIELDS,
  flags=flags,
  page=page,
  path=PATH,
)
