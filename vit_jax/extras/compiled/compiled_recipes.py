"""The paper's recipes and later ones, compiled for several TPU slices: docs/compiled.{csv,md}."""

from collections.abc import Sequence

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
  *(f"configs/{name}.py:{size}" for name in ("mae", "mae_finetune") for size in ("B", "L", "H")),
  *(f"configs/dino.py:{size}" for size in ("S", "B")),
)
LATER_TOPOLOGIES = ("v3:4x4", "v5e:4x8")
SMALL_SLICE = "v3:4x4"
# On the page for this slice: the ViTs with most tokens, masked autoencoders and DINO.
ON_SMALL_SLICE = (
  *(f"configs/vit_{name}.py" for name in ("b16_i1k", "l16_i1k", "b16_i21k")),
  *("configs/vit_l16_i21k.py:90", "configs/vit_b16_jft.py", "configs/vit_l16_jft.py:14"),
  "configs/vit_h14_jft.py",
  *(f"configs/finetune.py:ViT-{name},imagenet" for name in ("B/16", "L/16", "H/14")),
  *(f"configs/mae.py:{size}" for size in ("B", "L", "H")),
  *(f"configs/dino.py:{size}" for size in ("S", "B")),
)
OF_TABLE_2 = (
  "configs/vit_h14_jft.py",
  "configs/vit_l16_jft.py:14",
  "configs/vit_l16_i21k.py:90",
)
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
    f"- {old} rows do not record their program (`made_from`). Those of `vit_*_i1k.py` and",
    "  `vit_*_i21k.py` predate the faster dropout: on v6e their steps are now",
    "  [shorter](decisions/dropout.md).",
  ] * (old > 0)


def page(rows: list[Row]) -> str:
  """The page: some recipes on a small slice, those of Table 2 on all."""
  lines = [
    "# Recipes, compiled for TPU slices",
    "",
    "`python tools/compile_table.py` compiles training steps with the TPU compiler: missing pairs",
    "of a recipe and a slice, and those whose step has changed. Nothing was run on a TPU.",
    f"[compiled.csv](compiled.csv) has {len(rows)} of {len(pairs())} pairs, also of ResNets,",
    "hybrids and later papers. They were compiled in November 2026 with libtpu 0.0.51; the JAX",
    "version was not recorded.",
    "",
    "- **Memory** is the peak of a device: one of the two cores of a chip on v3, else a chip.",
    "- **Device-days** and **MFU** follow from the compiler's cycles, without communication.",
    *before_names(rows),
    "",
    "## On v3:4x4",
    "",
    "32 cores of 16 GiB. A setting beside the peak is needed to fit.",
    *elsewhere(rows),
    "",
    *of_slice(rows, SMALL_SLICE, ON_SMALL_SLICE),
    "",
    "## On other slices",
    "",
    "Table 2 of the paper has 2,500, 680 and 230 days of v3 cores. With few images a chip, updates",
    "cost more: the smaller slice of v3 takes fewer device-days ([why](decisions/v6e.md)).",
    "",
    *by_recipe(rows, OF_TABLE_2, TOPOLOGIES),
    "",
    *by_recipe(rows, [ONE_HOST[0][0]], [topology for _, topology in ONE_HOST]),
  ]
  return "\n".join(lines) + "\n"


def elsewhere(rows: list[Row]) -> list[str]:
  """A line about the slices on which every recipe fits as it is."""
  known = {row["topology"] for row in rows}
  needy = {row["topology"] for row in rows if notes(row)}
  free = [topology for topology in TOPOLOGIES if topology in known - needy]
  return [f"On {', '.join(free)} every recipe fits as it is."] * bool(free)


def of_slice(rows: list[Row], topology: str, names: Sequence[str]) -> list[str]:
  """A table with a line for each recipe on one slice."""
  found = {row["recipe"]: row for row in rows if row["topology"] == topology}
  lines = ["| recipe | peak, GiB | device-days | MFU |", "|---|---|---|---|"]
  for name in map(name_of, names):
    if name in found:
      row = found[name]
      cells = (name, peak(row), number(row, "core_days", 1, 1), percent(row, "mfu"))
      lines.append(f"| {' | '.join(cells)} |")
  return lines


def by_recipe(rows: list[Row], names: Sequence[str], topologies: Sequence[str]) -> list[str]:
  """A table with a line for each slice and a column for each recipe."""
  found = {(row["recipe"], row["topology"]): row for row in rows}
  heads = [name_of(name) for name in names]
  lines = [f"| slice | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
  for topology in topologies:
    known = [found.get((head, topology)) for head in heads]
    cells = [peak_and_days(row) if row else "" for row in known]
    lines.append(f"| {topology} | {' | '.join(cells)} |")
  return lines


def peak(row: Row) -> str:
  """The peak memory, and the settings with which it fits."""
  return number(row, "peak_bytes", 2**-30, 1) + notes(row)


def peak_and_days(row: Row) -> str:
  """The peak memory, device-days and the MFU."""
  peak_memory = number(row, "peak_bytes", 2**-30, 1)
  days = number(row, "core_days", 1, 1)
  return f"{peak_memory} GiB, {days} ({percent(row, 'mfu')}){notes(row)}"


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
