"""Writes the parameters of a checkpoint to a file that `vit_jax.weights.load` reads.

python tools/export.py --source WORKDIR --output params.msgpack [--step N] [--ema]
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from vit_jax import checkpoint, weights
from vit_jax.config import RunError


def main():
  """Exports; exit status 1 and one sentence where that is not possible."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--source", type=pathlib.Path, required=True, help="workdir of a run")
  parser.add_argument("--output", type=pathlib.Path, required=True, help="file to write: *.msgpack")
  parser.add_argument("--step", type=int, default=0, help="checkpoint's step; default: the newest")
  parser.add_argument("--ema", action="store_true", help="the moving average of the parameters")
  args = parser.parse_args()
  try:
    folder = checkpoint.find(args.source, args.step)
    params = checkpoint.load_params(folder, ema=args.ema)
    weights.save(args.output, params)
  except (RunError, ValueError, OSError) as error:
    sys.exit(f"export: {error}")
  print(f"{args.output}: {'moving average of the ' if args.ema else ''}parameters of {folder}")


if __name__ == "__main__":
  main()
