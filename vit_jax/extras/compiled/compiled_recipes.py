"""The paper's recipes and later ones, compiled for several TPU slices: docs/compiled.{csv,md}."""

from collections.abc import Callable, Sequence

from vit_jax.extras.compiled.table import ROOT, Pair, Row, Table, name_of, number, percent

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
# Recipes of later papers, on slices that suit their batches: 2,016 images cannot be divided by 256.
LATER = (
  *(f"configs/deit3.py:{size}" for size in ("S", "B", "L", "H")),
  *(f"configs/deit3.py:{size},finetune" for size in ("B", "L", "H")),
  "configs/augreg.py:ViT-B/16,strong2,regularised",
  *(f"configs/mae_finetune.py:{size}" for size in ("B", "L", "H")),
)
LATER_TOPOLOGIES = ("v3:4x4", "v5e:4x8")
# One host: the first commands of docs/tpu.md.
ONE_HOST = tuple(("configs/vit_b16_i1k.py", name) for name in ("v5e:2x4", "v6e:2x4", "v3:2x2"))
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
  "made_from",
)


# For recipes with two lengths, which differ only in days, the length whose days are in Table 2.
LENGTHS = {"vit_l16_jft.py": ":14", "vit_l16_i21k.py": ":90"}


# Figure 8's shapes; and ViT-H/14 on ImageNet-21k, the step of vit_h14_jft.py with dropout.
LEFT_OUT = ("vit_shape_jft.py", "vit_h14_i21k.py")


def recipes() -> list[str]:
  """The paper's recipes, as --config takes them, the pre-training ones first."""
  paths = sorted((ROOT / "configs").glob("*_*1k.py")) + sorted((ROOT / "configs").glob("*_jft.py"))
  names = [path.name for path in paths if path.name not in LEFT_OUT]
  return [f"configs/{name}{LENGTHS.get(name, '')}" for name in names] + [
    f"configs/finetune.py:{argument}" for argument in FINE_TUNED
  ]


def pairs() -> list[Pair]:
  """The recipes to compile, each with a topology."""
  of_the_paper = [(recipe, topology) for recipe in recipes() for topology in TOPOLOGIES]
  of_later = [(recipe, topology) for recipe in LATER for topology in LATER_TOPOLOGIES]
  return [*of_the_paper, *of_later, *ONE_HOST]


def before_names(rows: list[Row]) -> list[str]:
  """The lines about rows that do not say which program they are for."""
  old = sum(not row["made_from"] for row in rows)
  return [
    f"- {old} rows were compiled before `made_from` was recorded. Those of `vit_*_i1k.py` and",
    "  `vit_*_i21k.py` predate the faster dropout: on v6e their steps are now",
    "  [shorter](decisions/dropout.md).",
  ] * (old > 0)


def page(rows: list[Row]) -> str:
  """The rows as a page."""
  lines = [
    "# Recipes, compiled for TPU slices",
    "",
    f"{len(rows)} of {len(pairs())} pairs of a recipe and a slice.",
    "",
    "<!-- not run: hours -->",
    "```bash",
    "python tools/compile_table.py",
    "```",
    "",
    "This command compiles training steps with the real TPU compiler: pairs that are missing, and",
    "those whose step has changed since. Nothing here was run on a TPU.",
    "[compiled.csv](compiled.csv) has every number, also the time of a step.",
    "",
    "- Memory is per device: one of the two cores of a chip on v3, a whole chip elsewhere.",
    "- Times come from the cycles that the compiler counts, without communication. Device-days and",
    "  MFU follow from them.",
    "- For fine-tuning, each model but R200x3 is listed with ImageNet, and the models of Table 2",
    "  also with CIFAR-100. Other tasks have the same resolution and smaller heads.",
    *before_names(rows),
    "",
    "## Peak memory of the paper's recipes, GiB",
    "",
    *by_slice(rows, recipes(), TOPOLOGIES, peak),
    "",
    "## Device-days of the paper's recipes, and MFU",
    "",
    "On many chips, each gets few images and updates all parameters: on v3, the smaller slice",
    "takes fewer device-days for every recipe ([why, on v6e](decisions/v6e.md)).",
    "The paper's Table 2 has 680 days of v3 cores for `vit_l16_jft.py:14`, 230 for",
    "`vit_l16_i21k.py:90` and 2,500 for `vit_h14_jft.py`.",
    "",
    *by_slice(rows, recipes(), TOPOLOGIES, days),
    "",
    "## Later papers' recipes: peak memory, device-days and MFU",
    "",
    *by_slice(rows, LATER, LATER_TOPOLOGIES, peak_and_days),
    "",
    "## One host: peak memory, device-days and MFU",
    "",
    *by_slice(rows, [ONE_HOST[0][0]], [topology for _, topology in ONE_HOST], peak_and_days),
  ]
  return "\n".join(lines) + "\n"


def by_slice(
  rows: list[Row],
  names: Sequence[str],
  topologies: Sequence[str],
  cell: Callable[[Row], str],
  memory: str = "hbm_bytes",
) -> list[str]:
  """A table with a line for each recipe and a column for each slice or machine.

  Args:
    rows: those there are; a pair that is missing has an empty cell.
    names: of the recipes, as --config takes them.
    topologies: the slices or machines.
    cell: what a cell says about its row.
    memory: the field with the memory of a device, which the head of a column says.
  """
  found = {(row["recipe"], row["topology"]): row for row in rows}
  sizes = {row["topology"]: number(row, memory, 2**-30, 1).removesuffix(".0") for row in rows}
  heads = [f"{topology}, {sizes[topology]} GiB" for topology in topologies if topology in sizes]
  lines = [f"| recipe | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
  for name in map(name_of, names):
    known = [found.get((name, topology)) for topology in topologies if topology in sizes]
    cells = [cell(row) if row else "" for row in known]
    lines.append(f"| {name} | {' | '.join(cells)} |")
  return lines


def peak(row: Row) -> str:
  """The peak memory, and the settings with which it fits."""
  return number(row, "peak_bytes", 2**-30, 1) + notes(row)


def days(row: Row) -> str:
  """Device-days, and the MFU."""
  return f"{number(row, 'core_days', 1, 1)} ({percent(row, 'mfu')})"


def peak_and_days(row: Row) -> str:
  """Both."""
  return f"{number(row, 'peak_bytes', 2**-30, 1)} GiB, {days(row)}{notes(row)}"


def notes(row: Row) -> str:
  """The settings with which a row fits, or that it does not; "" if it fits as it is."""
  words = str(row["settings"]).split()
  if str(row["fits"]) != "True":
    words.append("does not fit")
  return "".join(f", {word}" for word in words)


TABLE = Table(
  csv=ROOT / "docs" / "compiled.csv",
  pairs=pairs,
  fields=FIELDS,
  flags=lambda recipe, topology, rows: [],
  page=page,
  path=ROOT / "docs" / "compiled.md",
)
