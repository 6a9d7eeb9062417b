"""Parameters, multiply-adds and training FLOPs of models and recipes: worked out, not measured.

  python tools/cost.py                               every row of Table 6, beside the paper's figure
  python tools/cost.py --models ViT-B/16 R50x1 --image-size 384
  python tools/cost.py --config=configs/vit_l16_jft.py:14

The rows of Table 6 and of --models stand for pre-training on JFT-300M: 224 px, 303 million images
an epoch, a head of 18,291 classes and, in ViTs and hybrids, a representation layer before it. The
options replace what a row or a recipe says. A recipe's model that differs from its name in shape is
followed by the settings that make it so.

Parameters are those of the whole model as it is trained, so with the head for its classes, which
JFT-300M makes large: 100 million of ViT-B/16. "Without head" leaves the head and the representation
layer out: 86 million, as in Table 1. JSON and CSV call the two params and body_params.

GMACs are 1e9 multiply-adds of one image's forward pass; only convolutions and products of matrices
count. Training costs 6 FLOPs for each, the backward pass being twice the forward. exaFLOPs are 1e18
FLOPs of the whole training, and missing where it is not known how many images that is: give
--examples. The paper's figure stands beside the runs of its Table 6 only; the ratio is ours to it.
"""

import argparse
import csv
import dataclasses
import io
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tools.ending import leave
from vit_jax import config, models, recipes
from vit_jax.models import flops
from vit_jax.process import console
from vit_jax.training import checks

# Table 6 of the paper: exaFLOPs by model and epochs.
PAPER = {
  ("ViT-B/32", 7): 55,
  ("ViT-B/16", 7): 224,
  ("ViT-L/32", 7): 196,
  ("ViT-L/16", 7): 783,
  ("ViT-L/16", 14): 1567,
  ("ViT-H/14", 14): 4262,
  ("R50x1", 7): 50,
  ("R50x2", 7): 199,
  ("R101x1", 7): 96,
  ("R152x1", 7): 141,
  ("R152x2", 7): 563,
  ("R152x2", 14): 1126,
  ("R200x3", 14): 3306,
  ("R50x1+ViT-B/32", 7): 106,
  ("R50x1+ViT-B/16", 7): 274,
  ("R50x1+ViT-L/32", 7): 246,
  ("R50x1+ViT-L/16", 7): 859,
  ("R50x1+ViT-L/16", 14): 1668,
}
EPOCHS = 7  # of most rows of Table 6

JFT_CLASSES = recipes.DATASETS["jft"]["num_classes"]
JFT_EXAMPLES = recipes.DATASETS["jft"]["examples"]

# Settings that make a model another than its name says.
SHAPE = ("depth", "width", "mlp_dim", "heads", "stages", "pool", "positions", "position_place")

# Key of a row: its heading in the table and its format there.
COLUMNS = {
  "model": ("model", ""),
  "epochs": ("epochs", "g"),
  "params": ("parameters", ",d"),
  "body_params": ("without head", ",d"),
  "gmacs": ("GMACs", ",.2f"),
  "training_gflops": ("training GFLOPs/image", ",.1f"),
  "exaflops": ("exaFLOPs", ",.1f"),
  "paper_exaflops": ("paper", ",d"),
  "ratio": ("ratio", ".3f"),
}


def pretraining(name: str, epochs: float = EPOCHS) -> config.Config:
  """What Table 6 counts: `name` trained on JFT-300M at 224 px.

  Raises:
    ValueError: no such model.
  """
  model = config.Model(name=name, num_classes=JFT_CLASSES)
  if isinstance(models.create(name), models.ViT):
    model = dataclasses.replace(model, representation_layer=True, scan=True)
  return config.Config(model=model, duration=config.Duration(epochs=epochs))


def chosen(args: argparse.Namespace) -> list[config.Config]:
  """The runs that the command line asks for.

  Raises:
    ValueError: no such model or recipe.
  """
  if args.config:
    runs = [recipes.load(args.config)]
  elif args.models:
    runs = [pretraining(name) for name in args.models]
  else:
    runs = [pretraining(name, epochs) for name, epochs in PAPER]
  return [replaced(run, args) for run in runs]


def replaced(run: config.Config, args: argparse.Namespace) -> config.Config:
  """The run with what the command line says instead.

  Raises:
    ConfigError: a value out of its bounds, or an image size that the patches do not tile.
  """
  values = config.to_dict(run)
  if args.image_size is not None:
    values["data"]["image_size"] = args.image_size
  if args.num_classes is not None:
    values["model"]["num_classes"] = args.num_classes
  if args.epochs is not None:
    values["duration"] = config.to_dict(config.Duration(epochs=args.epochs))
  run = config.from_dict(values)
  if not run.data.image_size:
    raise config.ConfigError("config.data.image_size=0 is too small; give --image-size=224, say.")
  checks.check_model(run)
  return run


def cost(run: config.Config, examples: int | None) -> dict:
  """One row.

  Args:
    run: its model, image size, duration and batch size count.
    examples: training images in an epoch; None: those of the dataset with as many classes, if any.
  """
  macs, images = forward_macs(run), training_images(run, examples)
  exaflops = None if images is None else flops.training_flops(macs) * images / 1e18
  paper = paper_exaflops(run, macs, images)
  side = run.data.image_size
  params = flops.parameters(models.configured(run.model), side, side)
  return dict(
    model=label(run.model),
    epochs=run.duration.epochs or None,
    params=sum(params.values()),
    body_params=sum(n for part, n in params.items() if part not in ("head", "pre_logits")),
    gmacs=macs / 1e9,
    training_gflops=flops.training_flops(macs) / 1e9,
    exaflops=exaflops,
    paper_exaflops=paper,
    ratio=exaflops / paper if paper else None,
  )


def forward_macs(run: config.Config) -> int:
  """Multiply-adds of one image's forward pass."""
  side = run.data.image_size
  return flops.forward_macs(models.configured(run.model), side, side)


def training_images(run: config.Config, examples: int | None) -> float | None:
  """Images of the whole training, each counted as often as it is seen; None: not known."""
  if not run.duration.epochs:
    return run.duration.examples + run.duration.steps * run.batch_size
  examples = examples or recipes.examples_of(run)
  return None if examples is None else run.duration.epochs * examples


def paper_exaflops(run: config.Config, macs: int, images: float | None) -> int | None:
  """Table 6's figure, where this run computes as much as that row's; else None."""
  row = (run.model.name, run.duration.epochs)
  if row not in PAPER:
    return None
  its = pretraining(*row)
  same = (macs, images) == (forward_macs(its), training_images(its, JFT_EXAMPLES))
  return PAPER[row] if same else None


def label(model: config.Model) -> str:
  """The model's name, and after it the settings of its shape that differ from the name's."""
  default = config.Model()
  changes = {key: value for key in SHAPE if (value := getattr(model, key)) != getattr(default, key)}
  return " ".join([model.name, *(f"{key}={value}" for key, value in changes.items())])


def as_table(rows: list[dict]) -> str:
  """Aligned columns; what is not known is empty."""
  cells = [[heading for heading, _ in COLUMNS.values()]]
  for row in rows:
    cells.append(
      ["" if row[key] is None else format(row[key], form) for key, (_, form) in COLUMNS.items()]
    )
  first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
  lines = [
    "  ".join([f"{name:{first}}", *(f"{x:>{n}}" for x, n in zip(rest, others, strict=True))])
    for name, *rest in cells
  ]
  return "\n".join(line.rstrip() for line in lines)


def as_json(rows: list[dict]) -> str:
  """A list of objects; what is not known is null."""
  return json.dumps(rows, indent=2)


def as_csv(rows: list[dict]) -> str:
  """A line of keys, then a line for each row; what is not known is empty."""
  text = io.StringIO()
  writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue().rstrip("\n")


FORMATS = {"table": as_table, "json": as_json, "csv": as_csv}


def count(text: str) -> int:
  """A number of images.

  Raises:
    argparse.ArgumentTypeError: it is not a whole number of at least 1.
  """
  if not text.isdecimal() or not int(text):
    raise argparse.ArgumentTypeError(f"{text!r} is no number of images; give a whole one from 1.")
  return int(text)


def parser() -> argparse.ArgumentParser:
  """The command line."""
  result = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  what = result.add_mutually_exclusive_group()
  what.add_argument(
    "--models", nargs="+", metavar="NAME", help="names as in the paper, 7 epochs each"
  )
  what.add_argument("--config", metavar="configs/NAME.py[:ARG]", help="a recipe")
  result.add_argument("--image-size", type=int, metavar="N", help="side of the images, pixels")
  result.add_argument("--num-classes", type=int, metavar="K", help="outputs of the head")
  result.add_argument("--epochs", type=float, metavar="E", help="passes over the training images")
  result.add_argument(
    "--examples",
    type=count,
    metavar="N",
    help="training images in an epoch; known where the head has the classes of JFT-300M (18,291), "
    "ImageNet-21k (21,843) or ImageNet (1,000)",
  )
  result.add_argument("--format", choices=FORMATS, default="table", help="default: table")
  return result


def main(arguments: list[str] | None = None):
  """Prints the costs; exit status 2 and one sentence where the command line is wrong.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args = parser().parse_args(arguments)
  try:
    rows = [cost(run, args.examples) for run in chosen(args)]
  except ValueError as error:
    leave("cost", str(error), 2)
  print(FORMATS[args.format](rows))


if __name__ == "__main__":
  console.of_tool()
  main()
