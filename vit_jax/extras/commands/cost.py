"""Computes parameters, multiply-adds and training FLOPs of models and recipes, without measuring.

  vit-jax cost                               every row of Table 6, beside the paper's number
  vit-jax cost --model ViT-B/16 R50x1 --image-size 384
  vit-jax cost --config=configs/vit_l16_jft.py:14
  vit-jax cost --config=finetune:cifar10 --config.model.name=ViT-B/16

The rows of Table 6 and of --model are for pre-training on JFT-300M: 224 px, 303 million images an
epoch, a head of 18,291 classes and, in ViTs and hybrids, a representation layer before it. The
options override the values of a row or a recipe. If the shape of a recipe's model differs from its
name, the settings that differ follow the name.

"Parameters" counts the whole model as it is trained, with its head. The head for JFT-300M is large:
ViT-B/16 then has 100 million. "Without head" leaves out the head and the representation layer: 86
million, as in Table 1. In JSON and CSV the two are params and body_params.

"Checkpoint" is the arrays of one checkpoint: parameters, the optimizer's state and the moving
average, if the run has one.

GMACs are 1e9 multiply-adds of the model's forward pass for one image; only convolutions and matmuls
count, without the zeros around a map. Training costs 6 FLOPs for each multiply-add, because the
backward pass costs twice as much as the forward pass; the FLOPs of a teacher, a decoder and further
crops are added, and patches that the encoder does not see are not. exaFLOPs are 1e18 FLOPs of the
whole training. They are missing if the number of images is not known: give --examples. FLOPs are
missing if only a part of the model is trained, as all gradients are counted. The paper's number is
shown for the runs of its Table 6 only; the ratio is our number divided by the paper's.
"""

import argparse
import csv
import io
from collections.abc import Sequence

from vit_jax import config, recipes
from vit_jax.config import recipe_file
from vit_jax.config.tool_flags import ToolFlags, ending, image_size, whole
from vit_jax.process import text
from vit_jax.process.text import aligned, cells

# Key of a row: (heading in the table, format).
COLUMNS = {
  "model": ("model", ""),
  "epochs": ("epochs", "g"),
  "params": ("parameters", ",d"),
  "body_params": ("without head", ",d"),
  "checkpoint_bytes": ("checkpoint, bytes", ",d"),
  "gmacs": ("GMACs", ",.2f"),
  "training_gflops": ("training GFLOPs/image", ",.1f"),
  "exaflops": ("exaFLOPs", ",.1f"),
  "paper_exaflops": ("paper", ",d"),
  "ratio": ("ratio", ".3f"),
}


def chosen(args: argparse.Namespace, settings: Sequence[str] = ()) -> list[config.Config]:
  """The runs that the command line asks for.

  Args:
    args: of the command line.
    settings: --config.KEY=VALUE for each run.

  Raises:
    ConfigError: there is no such model or recipe, or a setting is wrong.
  """
  from vit_jax.recipes import cost

  texts, _ = recipe_file.split_settings(settings)
  if args.config:
    return [replaced(recipes.load(args.config, texts), args)]
  rows = cost.PAPER
  if args.model:
    rows = [(name, cost.EPOCHS) for name in args.model]
  runs = [recipe_file.replaced(cost.pretraining(*row), texts) for row in rows]
  return [replaced(run, args) for run in runs]


def replaced(run: config.Config, args: argparse.Namespace) -> config.Config:
  """The run, with the values of the command line in place of its own.

  Raises:
    ConfigError: a value is out of its bounds, or the patches do not tile the image size.
  """
  from vit_jax.config.resolve import check_known
  from vit_jax.extras.experiments.facts import decided
  from vit_jax.training import checks
  from vit_jax.training.facts import LATER

  values = config.to_dict(run)
  if args.image_size is not None:
    values["data"]["image_size"] = args.image_size
  if args.num_classes is not None:
    values["model"]["num_classes"] = args.num_classes
  if args.epochs is not None:
    values["duration"] = config.to_dict(config.Duration(epochs=args.epochs))
  asked = config.from_dict(values)
  run = decided(asked)
  if run.data.image_size == config.AUTO:
    raise config.ConfigError(
      "The recipe leaves the image size to data; give --image-size=224, say."
    )
  check_known(run, LATER)
  checks.check_model(run.model, run.data.image_size)
  return run


def as_table(rows: list[dict]) -> str:
  """Aligned columns; unknown values are empty."""
  return aligned(cells(rows, COLUMNS))


def as_json(rows: list[dict]) -> str:
  """A list of objects; unknown values are null."""
  return text.json_text(rows)


def as_csv(rows: list[dict]) -> str:
  """A line of keys, then a line for each row; unknown values are empty."""
  text = io.StringIO()
  writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue().rstrip("\n")


FORMATS = {"table": as_table, "json": as_json, "csv": as_csv}


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("cost", __doc__)
  what = result.add_mutually_exclusive_group()
  what.add_argument("--model", nargs="+", metavar="NAME", help="names of the paper, 7 epochs each")
  what.add_argument("--config", metavar="configs/NAME.py[:ARG]", help="a recipe")
  add = result.add_argument
  add("--image-size", type=image_size, metavar="N", help="pixels, such as 224 or 224x256")
  add("--num-classes", type=int, metavar="K", help="outputs of the head")
  add("--epochs", type=float, metavar="E", help="passes over the training images")
  add(
    "--examples",
    type=whole(1, 10**15),
    metavar="N",
    help="training images in an epoch; default: those of the dataset that the recipe is for, "
    "JFT-300M for --model",
  )
  result.add_settings()
  result.add_format(*FORMATS)
  return result


def main(arguments: list[str] | None = None):
  """Prints the costs; a wrong command line ends with one sentence and exit status 2.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args, settings = flags().parse_with_settings(arguments)
  with ending("cost"):
    from vit_jax.recipes import cost  # imports JAX

    rows = [cost.cost(run, args.examples) for run in chosen(args, settings)]
  print(FORMATS[args.format](rows))
