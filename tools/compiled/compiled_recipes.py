"""The paper's recipes and later ones, compiled for several TPU slices: docs/compiled.{csv,md}."""

from compiled.table import ROOT, Pair, Row, Table, number, percent

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
    f"- {old} rows were compiled before `made_from` was written down. Of these, the rows of",
    "  `vit_*_i1k.py` and `vit_*_i21k.py`, which have dropout, are of draws that cost twice as",
    "  much as today's: on v6e, steps with dropout are now [shorter](decisions/dropout.md).",
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
    "This command compiles the training step of the recipes of Tables 3, 4 and 6, of masked",
    "patches, of the plain ViT-S/16 and of later papers with the real TPU compiler: the rows that",
    "are missing, and those whose step has changed since. Nothing here was run on a TPU.",
    "[compiled.csv](compiled.csv) has every number.",
    "",
    "- Memory is per device: one of the two cores of a chip on v3, a whole chip elsewhere.",
    "- The time of a step comes from the cycles that the compiler counts for each operation,",
    "  without communication; MFU and device-days follow from it.",
    "- On many chips, each gets few images, and each updates all parameters: on v3, the smaller",
    "  slice takes fewer device-days for every recipe ([why, on v6e](decisions/v6e.md)).",
    *before_names(rows),
    "- The paper's days, from its Table 2, are days of v3 cores.",
    "- From Table 4, each model but R200x3 is listed with ImageNet, and the models of Table 2 also",
    "  with CIFAR-100. The other tasks have the same resolution; they differ in the number of",
    "  steps and in the head, which is smaller than ImageNet's.",
    "",
    "| recipe | slice | devices | with | peak, GiB | of | step, ms | MFU | device-days | paper's |",
    "|---|---|---|---|---|---|---|---|---|---|",
  ]
  for row in TABLE.sorted(rows):
    note = ""
    if str(row["fits"]) != "True":
      note = " (does not fit)"
    lines.append(
      f"| {row['recipe']} | {row['topology']} | {row['devices']} | {row['settings']} "
      f"| {number(row, 'peak_bytes', 2**-30, 1)}{note} "
      f"| {number(row, 'hbm_bytes', 2**-30, 0)} | {number(row, 'step_seconds_estimate', 1e3, 1)} "
      f"| {percent(row, 'mfu')} "
      f"| {number(row, 'core_days', 1, 1)} | {number(row, 'paper_core_days', 1, 0)} |"
    )
  return "\n".join(lines) + "\n"


TABLE = Table(
  csv=ROOT / "docs" / "compiled.csv",
  pairs=pairs,
  fields=FIELDS,
  flags=lambda recipe, topology, rows: [],
  page=page,
  path=ROOT / "docs" / "compiled.md",
)
