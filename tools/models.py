"""Writes the page of all models: size, cost, the paper's accuracy, and published weights.

python tools/models.py --output docs/models.md

Exit status: 0 done; 2 wrong usage, or the folder cannot be written to; 1 the disk fails.
"""

import csv
import pathlib
from collections.abc import Iterable

from vit_jax.config.tool_flags import ToolFlags, ending, folder, path
from vit_jax.process import console
from vit_jax.process.text import markdown_table

ROOT = pathlib.Path(__file__).parents[1]
PAPER = ROOT / "configs" / "studies" / "paper"
SIDE = 224  # pixels
CLASSES = 1000
PRETRAINING = ("ImageNet", "ImageNet-21k", "JFT-300M")

BEGIN = """# Models

`--config.model.name=NAME` selects a model of this table, or a variant: any patch size (`ViT-B/20`),
any width of a ResNet (`R101x2`), larger patches on the map of a hybrid (`R50x1+ViT-B/16p2`), or
[a name of timm or Transformers](from-timm.md#names-of-models).

## Size and cost

At 224 pixels, with a head for 1,000 classes and no representation layer. GFLOPs are of one image
forward (a multiply-add is two); training takes three times as many. `vit-jax cost --model ViT-B/16
--image-size 384 --num-classes 1000` computes other sizes, in multiply-adds, with a representation
layer.

`b` is half as wide as `B` (Figure 4). `R50x1+ViT-B/16` is a hybrid, `R50x1` a ResNet (BiT) of 50
layers and width 1. `R+ViT-Ti/16` is a published name; its patches have 32 pixels.
"""

ACCURACIES = """
## Accuracy in the paper

Top-1 of ViTs on ImageNet in percent, after pre-training on this dataset and fine-tuning (Table 5).
None was repeated here.
"""

WEIGHTS = """
## Published weights

Names with `timm/` or `google/` are on the Hugging Face Hub; download the others from
`https://storage.googleapis.com/vit_models/NAME.npz`. All were pre-trained on ImageNet-21k; none
has a head of ImageNet's 1,000 classes. Top-1 is the published one on ImageNet, in percent, after
fine-tuning at 384 pixels. None of these files was tried: tests load files with the same names and
shapes.
"""


def page() -> str:
  """The page as Markdown."""
  from vit_jax import models  # imports JAX

  sizes = [size_row(name) for name in models.names()]
  return "\n".join(
    [
      BEGIN,
      markdown_table([["model", "parameters", "GFLOPs"], *sizes]),
      ACCURACIES,
      markdown_table([["model", *PRETRAINING], *accuracy_rows(models.names())]),
      WEIGHTS,
      markdown_table([["model", "top-1", "weights"], *map(weights_row, published_weights())]),
      "",
    ]
  )


def size_row(name: str) -> list[str]:
  """A model's name, parameters and GFLOPs."""
  from vit_jax import models
  from vit_jax.models import family, vit_costs

  module = models.create(name, num_classes=CLASSES)
  if hasattr(module, "scan"):
    module = models.create(name, num_classes=CLASSES, scan=True)  # is traced in a tenth of the time
  side = family.largest_side(module, SIDE, name)
  parameters = sum(vit_costs.by_part(module.parameter_shapes(side)).values())
  gflops = 2 * module.macs(side, side) / 1e9
  return [name, f"{parameters:,}", f"{gflops:,.1f}"]


def accuracy_rows(names: Iterable[str]) -> list[list[str]]:
  """Of each model of Table 5: its name and accuracies."""
  accuracies = published_accuracies()
  return [[name, *accuracies[name]] for name in names if name in accuracies]


def published_accuracies() -> dict[str, list[str]]:
  """The paper's accuracies on ImageNet, in percent: {model: one for each pre-training}."""
  found = {
    (row["model"], row["pretraining"]): row["accuracy"]
    for row in rows_of(PAPER / "table5.csv")
    if row["task"] == "ImageNet"
  }
  return {
    model: [percent(found.get((model, data), "")) for data in PRETRAINING] for model, _ in found
  }


def percent(accuracy: str) -> str:
  """An accuracy of the paper's tables in percent, without the sign; "" if there is none."""
  if not accuracy:
    return ""
  return f"{float(accuracy):.2%}".removesuffix("%")


def weights_row(row: dict[str, str]) -> list[str]:
  """The model, the accuracy, and the names of one row of published weights."""
  names = [row["google"], row["timm"] and f"timm/{row['timm']}", row["transformers"]]
  return [row["model"], row["accuracy"], ", ".join(f"`{name}`" for name in names if name)]


def published_weights() -> list[dict[str, str]]:
  """The rows of docs/published_weights.csv."""
  return rows_of(ROOT / "docs" / "published_weights.csv")


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
