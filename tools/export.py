"""Writes parameters in another format, with a card that says how images are prepared.

python tools/export.py --source WORKDIR --output params.npz
python tools/export.py --source ViT-B_16.npz --format huggingface --output vit_b16 --verify

The folder that --output lies in is made where it is not there. NAME.json beside the file is the
card: image size, resizing, class names. The names inside .npz and .safetensors files are those of
the published weights, which other libraries read.

Exit status: 0 done; 2 wrong usage: nothing at --source, no such step or average, nowhere to write
to; 1 weights that are damaged or have no place in the format, or a difference that --verify found.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import jax
import numpy as np

from tools.bounds import whole
from tools.ending import ending, folder
from vit_jax import models, weights
from vit_jax.config import ConfigError
from vit_jax.inference import loading
from vit_jax.process import console

SUFFIXES = {"npz": ".npz", "msgpack": ".msgpack", "safetensors": ".safetensors", "huggingface": ""}
BOUND = 1e-5


def parser() -> argparse.ArgumentParser:
  """The command line."""
  result = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  add = result.add_argument
  add(
    "--source",
    type=pathlib.Path,
    required=True,
    help="workdir, checkpoint, .npz, .msgpack, .safetensors, or a folder of Hugging Face's",
  )
  add("--output", type=pathlib.Path, required=True, help="file, or folder for huggingface")
  add("--format", choices=SUFFIXES, help="default: by the suffix of --output")
  add(
    "--step",
    type=whole(0, 2**63 - 1),
    default=0,
    help="of a workdir, the checkpoint; default: the newest",
  )
  add("--ema", action="store_true", help="of a checkpoint, the moving average of the parameters")
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
  if args.source.suffix in SUFFIXES.values() and args.source.suffix and (args.ema or args.step):
    raise ConfigError(f"--ema and --step choose in a workdir; --source {args.source} is a file.")
  if suffix:
    weights.format_of(args.output)
  folder(args.output.parent, "--output")
  if args.output.exists() and args.output.is_dir() == bool(suffix):
    kind = "folder" if suffix else "file"
    raise ConfigError(f"--output {args.output} is a {kind} already; give another name.")
  read = weights.read(args.source, step=args.step, ema=args.ema)
  read = weights.Weights(read.params, loading.prepared(read))
  if read.card.image_size:
    loading.load(read)  # names parameters that are missing or too many before anything is written
  weights.write(args.output, read)
  size = f"{read.card.image_size} px" if read.card.image_size else "an unknown number of pixels"
  lines = [
    f"{args.output}: {'moving average of the ' if args.ema else ''}parameters of {args.source}; "
    f"images of {size}, {len(read.card.class_names) or 'no'} class names"
  ]
  if suffix == ".npz" and "pre_logits" in read.params:
    lines.append(
      "Other readers of .npz, timm among them, drop its representation layer in silence."
    )
  if args.verify:
    lines.append(verify(read, weights.read(args.output)))
  return "\n".join(lines)


def verify(read: weights.Weights, again: weights.Weights) -> str:
  """The largest difference of two models' logits on two random images, in words.

  Raises:
    ValueError: it is above the bound.
  """
  side = read.card.image_size
  module = weights.module(read)
  if not side and isinstance(module, models.ResNet) and not module.heads:
    side = 224  # convolutions take any size
  if not side:
    raise ValueError("the parameters do not tell their image size, so they cannot be verified.")
  images = np.random.default_rng(0).uniform(-1, 1, (2, side, side, 3)).astype(np.float32)

  def logits(one):
    module = weights.module(one)
    return jax.jit(lambda p: module.apply({"params": p}, images, train=False)[0])(one.params)

  difference = float(np.abs(logits(read) - logits(again)).max())
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
