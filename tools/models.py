"""Writes the page of all models: size, cost, the paper's accuracy, and published weights.

python tools/models.py --output docs/models.md

Exit status: 0 done; 2 wrong usage, or the folder cannot be written to; 1 the disk fails.
"""

import csv
import pathlib

from vit_jax.config.tool_flags import ToolFlags, ending, folder, path
from vit_jax.process import console

ROOT = pathlib.Path(__file__).parents[1]
PAPER = ROOT / "configs" / "studies" / "paper"
SIDE = 224  # pixels
CLASSES = 1000

BEGIN = """# Models

`--config.model.name=NAME` selects a model of this table, or a variant: any patch size (`ViT-B/20`),
any width of a ResNet (`R101x2`), larger patches on the map of a hybrid (`R50x1+ViT-B/16p2`), or
[a name of timm or Transformers](from-timm.md#names-of-models). In Python, `models.names()` lists
them. This page is made by `python tools/models.py --output docs/models.md`.

## Size, cost and accuracy

At 224 pixels; `vit-jax cost --model ViT-B/16 --image-size 384` computes other sizes.

- **Parameters** include a head for 1,000 classes, and no representation layer.
- **GFLOPs** of one image forward (a multiply-add is two); training takes three times as many.
- **Tokens** include the class token.
- **The last three columns** are the paper's top-1 on ImageNet after pre-training on this dataset
  and fine-tuning (Tables 5 and 6; the longest training on JFT-300M). None was repeated here.
- `b` is half as wide as `B` (Figure 4). `R50x1+ViT-B/16` is a hybrid, `R50x1` a ResNet (BiT) of 50
  layers and width 1. `R+ViT-Ti/16` is a published name; its patches have 32 pixels. `So400m` is
  from Alabdulmohsin et al. (2023).
"""

WEIGHTS = """
## Published weights

Download Google's from `https://storage.googleapis.com/vit_models/NAME.npz`, timm's from `timm/NAME`
on the Hugging Face Hub and those of Transformers from `NAME`. Then [fine-tune](fine-tuning.md) or
[convert](weights.md) them. All were pre-trained on ImageNet-21k. Accuracy is the published top-1 on
ImageNet, in percent, after fine-tuning at 384 pixels. No file could be downloaded here: tests load
files with the same names and shapes.
"""


def page() -> str:
  """The page as Markdown."""
  from vit_jax import models  # imports JAX

  sizes = "parameters", "GFLOPs", "tokens"
  accuracies = "ImageNet", "ImageNet-21k", "JFT-300M"
  accuracy = published_accuracies()
  rows = [size_row(name, accuracy) for name in models.names()]
  published = [[cell and f"`{cell}`" for cell in row[2:]] for row in published_weights()]
  weights = [[*row[:2], *cells] for row, cells in zip(published_weights(), published, strict=True)]
  return "\n".join(
    [
      BEGIN,
      *table(["model", *sizes, *accuracies], rows),
      WEIGHTS,
      *table(["model", "accuracy", "Google", "timm", "Transformers"], weights),
      "",
    ]
  )


def table(headings: list[str], rows: list[list[str]]) -> list[str]:
  """The lines of a table in Markdown."""
  lines = [headings, ["---"] * len(headings), *rows]
  return [f"| {' | '.join(line)} |" for line in lines]


def size_row(name: str, accuracies: dict[str, list[str]]) -> list[str]:
  """A model's name, parameters, GFLOPs and tokens, and its accuracies in the paper."""
  from vit_jax import models
  from vit_jax.models import family, vit_costs

  module = models.create(name, num_classes=CLASSES)
  if hasattr(module, "scan"):
    module = models.create(name, num_classes=CLASSES, scan=True)  # is traced in a tenth of the time
  side = family.largest_side(module, SIDE, name)
  parameters = sum(vit_costs.by_part(module.parameter_shapes(side)).values())
  gflops = 2 * module.macs(side, side) / 1e9
  tokens = ""
  if hasattr(module, "depth"):
    tokens = f"{tokens_of(module, side):,}"
  return [name, f"{parameters:,}", f"{gflops:,.1f}", tokens, *accuracies.get(name, ["", "", ""])]


def tokens_of(module, side: int) -> int:
  """The tokens of a square image."""
  rows, columns = module.grid(side, side)
  return module.tokens_before() + rows * columns


def published_accuracies() -> dict[str, list[str]]:
  """The paper's accuracies on ImageNet, in percent: {model: one for each pre-training}."""
  pretrained = {
    (row["model"], row["pretraining"]): row["accuracy"]
    for row in rows_of(PAPER / "table5.csv")
    if row["task"] == "ImageNet"
  }
  for row in rows_of(PAPER / "table6.csv"):  # longer trainings stand below shorter ones
    if row["task"] == "ImageNet":
      pretrained[row["model"], "JFT-300M"] = row["accuracy"]
  datasets = ("ImageNet", "ImageNet-21k", "JFT-300M")
  return {
    model: [percent(pretrained.get((model, data), "")) for data in datasets]
    for model, _ in pretrained
  }


def percent(accuracy: str) -> str:
  """An accuracy of the paper's tables in percent, without the sign; "" if there is none."""
  if not accuracy:
    return ""
  return f"{float(accuracy):.2%}".removesuffix("%")


def published_weights() -> list[list[str]]:
  """The rows of docs/published_weights.csv."""
  return [list(row.values()) for row in rows_of(ROOT / "docs" / "published_weights.csv")]


def rows_of(file: pathlib.Path) -> list[dict[str, str]]:
  """The rows of a table in a CSV file."""
  with open(file, encoding="utf-8", newline="") as lines:
    return list(csv.DictReader(lines))


def main(arguments: list[str] | None = None):
  """Writes the page; see the exit status above."""
  flags = ToolFlags("models", __doc__, prog="python tools/models.py")
  flags.add_argument("--output", type=path, required=True, help="the file, docs/models.md")
  args = flags.parse_args(arguments)
  with ending("models"):
    folder(args.output.parent, "--output")
    args.output.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
  console.of_tool()
  main()
