"""Transfer between the two halves of Fashion-MNIST's classes, on real images (Section 3.2).

python tools/fashion_transfer.py [--workdir=DIR] [--output=DIR] [--fast] [--format=json]

It pre-trains a small ViT on the classes 0 to 4 and fine-tunes it on a few images of the classes 5
to 9, at 28 and at 56 pixels. For comparison it trains the same model from scratch for as many
steps. Each run is scored with the parameters of the last step and with their moving average, for
three seeds. OUTPUT/transfer.md gets means and standard deviations, OUTPUT/transfer.csv all figures.

Prepare Fashion-MNIST first: python tools/prepare_data.py build fashion_mnist. If the command was
stopped, start it again: it continues, and measures nothing twice.

Exit status: 0 done; 2 wrong usage, or Fashion-MNIST is not prepared; otherwise that of the run that
failed or was stopped (75: start it again).
"""

import json
import sys

from vit_jax.config.tool_ending import ending, folder
from vit_jax.config.tool_flags import ToolFlags, path
from vit_jax.process import console


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("fashion_transfer", __doc__)
  add = result.add_argument
  add("--workdir", type=path, help="images and runs; default: workdirs/fashion_transfer")
  add("--output", type=path, help="folder of transfer.md and transfer.csv; default: docs")
  small = "a trial with a few images and steps; writes only into the workdir"
  add("--fast", action="store_true", help=small)
  result.add_format("table", "json")
  return result


def main(arguments: list[str] | None = None):
  """Does the runs that are missing and writes the results.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args = flags().parse_args(arguments)
  from vit_jax.experiments import fashion_halves, fashion_report, fashion_transfer

  size = fashion_halves.FAST if args.fast else fashion_halves.Size()
  name = "fashion_transfer_fast" if args.fast else "fashion_transfer"
  workdir = (args.workdir or fashion_transfer.ROOT / "workdirs" / name).absolute()
  output = args.output or (workdir if args.fast else fashion_transfer.ROOT / "docs")
  with ending("fashion_transfer"):
    folder(workdir, "--workdir")
    folder(output, "--output")
    fashion_halves.prepare(workdir, size)
    rows = fashion_transfer.measure(workdir, size)
    fashion_report.write(rows, output, size)
  lines = fashion_report.summary(rows)
  print(json.dumps(lines, indent=2) if args.format == "json" else fashion_report.as_table(lines))
  print(f"Written: {output / 'transfer.md'}, {output / 'transfer.csv'}", file=sys.stderr)


if __name__ == "__main__":
  console.of_tool()
  main()
