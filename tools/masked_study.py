"""Does pre-training without labels help? Masked patch prediction on Fashion-MNIST (Section 4.6).

python tools/masked_study.py [--workdir=DIR] [--output=DIR] [--fast] [--format=json]

It pre-trains a small ViT on all training images without their labels, and fine-tunes it on 100,
1,000 and 10,000 labelled ones. For comparison it trains the same model from scratch, for as many
labelled steps and for as many steps in all. It also compares the three targets and two rates of
corruption. OUTPUT/masked.md gets means and standard deviations over three seeds, plots and
pictures, OUTPUT/masked.csv every figure.

Prepare Fashion-MNIST first: python tools/prepare_data.py build fashion_mnist. If the command was
stopped, start it again: it continues, and measures nothing twice.

Exit status: 0 done; 2 wrong usage, or Fashion-MNIST is not prepared; 75 stopped: start it again;
1 a run failed.
"""

import sys

from vit_jax.config.tool_ending import ending, folder
from vit_jax.config.tool_flags import ToolFlags, path
from vit_jax.process import console, json_text


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("masked_study", __doc__)
  add = result.add_argument
  add("--workdir", type=path, help="runs; default: workdirs/masked_study")
  add("--output", type=path, help="folder of the page, plot and figures; default: the workdir")
  add("--fast", action="store_true", help="a trial with a few steps")
  result.add_format("table", "json")
  return result


def main(arguments: list[str] | None = None):
  """Does the runs that are missing and writes the results.

  Args:
    arguments: the command line without the program's name; None: this process's own.
  """
  args = flags().parse_args(arguments)
  from vit_jax.experiments import masked_report, masked_study

  size = masked_study.FAST if args.fast else masked_study.Size()
  name = "masked_study_fast" if args.fast else "masked_study"
  workdir = (args.workdir or masked_study.ROOT / "workdirs" / name).absolute()
  output = args.output or workdir
  with ending("masked_study"):
    folder(workdir, "--workdir")
    folder(output, "--output")
    rows = list(masked_study.measure(workdir, size))
    masked_report.write(rows, workdir, output, size)
  lines = masked_report.summary(rows)
  print(json_text.written(lines) if args.format == "json" else masked_report.as_table(lines))
  print(f"Written: {output / masked_report.PAGE}", file=sys.stderr)


if __name__ == "__main__":
  console.of_tool()
  main()
