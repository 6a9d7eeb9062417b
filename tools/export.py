"""Writes parameters in another format, with a card that says how images are prepared.

python tools/export.py --source WORKDIR --output params.npz
python tools/export.py --source ViT-B_16.npz --format huggingface --output vit_b16 --verify

The folder that --output lies in is made where it is not there. NAME.json beside the file is the
card: image size, resizing, class names. The names inside .npz and .safetensors files are those of
the published weights, which other libraries read.

Exit status: 0 done; 2 wrong usage: nothing at --source, no such step or average, nowhere to write
to; 1 weights that are damaged or have no place in the format, or a difference that --verify found.
"""

import jax
import numpy as np

from vit_jax import models, weights
from vit_jax.config import ConfigError
from vit_jax.config.tool_ending import ending, folder
from vit_jax.config.tool_flags import ToolFlags, path, whole
from vit_jax.inference import model as inference
from vit_jax.inference.model import LoadedModel
from vit_jax.process import console

SUFFIXES = {"npz": ".npz", "msgpack": ".msgpack", "safetensors": ".safetensors", "huggingface": ""}
BOUND = 1e-5


def parser() -> ToolFlags:
  """The command line."""
  result = ToolFlags("export", __doc__)
  add = result.add_argument
  add(
    "--source",
    type=path,
    required=True,
    help="workdir, checkpoint, .npz, .msgpack, .safetensors, or a folder of Hugging Face's",
  )
  add("--output", type=path, required=True, help="file, or folder for huggingface")
  add("--format", choices=SUFFIXES, help="default: by the suffix of --output")
  add(
    "--step",
    type=whole(0, 2**63 - 1),
    default=0,
    help="of a workdir, the checkpoint; default: the newest",
  )
  add(
    "--ema",
    action=argparse.BooleanOptionalAction,
    help="of a checkpoint, the moving average of the parameters, or the parameters themselves; "
    "default: the average where there is one",
  )
  add(
    "--verify",
    action="store_true",
    help=f"read it again, run both, and exit with 1 where logits differ by more than {BOUND}",
  )
  return result


def export(args) -> str:
  """Does what the command line asks for; what it did, in words.

  Raises:
    ConfigError: the command line does not make sense.
    ValueError, OSError, RunError: it cannot be done, or `--verify` found a difference.
  """
  suffix = args.output.suffix if args.format is None else SUFFIXES[args.format]
  if args.output.suffix != suffix:
    wanted = f"end in {suffix!r}" if suffix else "be a folder's name without a dot"
    raise ConfigError(f"--output {args.output} must {wanted} for --format {args.format}.")
  chosen = "--step" if args.step else {True: "--ema", False: "--no-ema", None: ""}[args.ema]
  if args.source.suffix in SUFFIXES.values() and args.source.suffix and chosen:
    raise ConfigError(f"{chosen} chooses in a workdir; --source {args.source} is a file.")
  if suffix:
    weights.format_of(args.output)
  folder(args.output.parent, "--output")
  if args.output.exists() and args.output.is_dir() == bool(suffix):
    kind = "folder" if suffix else "file"
    raise ConfigError(f"--output {args.output} is a {kind} already; give another name.")
  model = inference.read(args.source, step=args.step, ema=args.ema)
  read, card = model.read, model.card
  if card.image_size:
    model.at_size()  # names parameters that are missing or too many before anything is written
  weights.write(args.output, weights.Weights(read.params, card))
  size = f"{card.image_size} px" if card.image_size else "an unknown number of pixels"
  kind = "moving average of the parameters" if read.average else "parameters"
  lines = [
    f"{args.output}: {kind} of {args.source}; images of {size}, "
    f"{len(card.class_names) or 'no'} class names"
  ]
  if suffix == ".npz" and "pre_logits" in read.params:
    lines.append(
      "Other readers of .npz, timm among them, drop its representation layer in silence."
    )
  if args.verify:
    lines.append(verify(model, inference.read(args.output)))
  return "\n".join(lines)


def verify(model: LoadedModel, again: LoadedModel) -> str:
  """The largest difference of two models' logits on two random images, in words.

  Raises:
    ValueError: it is above the bound.
  """
  side = model.card.image_size
  if not side and isinstance(model.module, models.ResNet) and not model.module.heads:
    side = 224  # convolutions take any size
  if not side:
    raise ValueError("the parameters do not tell their image size, so they cannot be verified.")
  images = np.random.default_rng(0).uniform(-1, 1, (2, side, side, 3)).astype(np.float32)

  def logits(one):
    run = jax.jit(lambda params: one.module.apply({"params": params}, images, train=False)[0])
    return run(one.at_size(side).params)

  difference = float(np.abs(logits(model) - logits(again)).max())
  words = f"largest difference of the logits after reading it again: {difference:.3g}"
  if not difference <= BOUND:
    raise ValueError(f"{words}, above {BOUND}.")
  return words


def main():
  """Exports; see the exit status above."""
  args = parser().parse_args()
  with ending("export"):
    print(export(args))


if __name__ == "__main__":
  console.of_tool()
  main()
