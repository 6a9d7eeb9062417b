"""Compiles a recipe's training step for TPUs or GPUs that you don't have: memory and speed.

vit-jax compile-check --config=configs/vit_l16_jft.py --topology=v3:16x16
vit-jax compile-check --config=configs/vit_b16_jft.py --topology=h100:8

A slice of TPUs is named by the chips along each side, such as v3:4x4 (32 cores; v3-32 on Google
Cloud), v4:4x4x4, v5e:16x16, v6e:16x16; GPUs by their number, such as h100:1, h100:8, or h100:2x8
for two machines of 8. The program is the main program's own, compiled by the real compiler. This
needs the compiler's package, but no device. If the step does not fit into memory, the tool tries
settings that need less memory until the step fits.

The TPU compiler counts cycles, from which the time of a step is estimated. For GPUs there is only a
bound: no step is faster than the sum over its kernels of their matmuls at the peak rate, or of
their bytes at the memory's rate if that takes longer.

--largest-batch keeps the recipe except for its batch size, and finds the largest one that fits.

--breakdown shows where the time of a step goes, by category: number of launches, bytes, the bound,
and on TPUs the time by the compiler's cycles and the ratio of the two.

Exit status: 0 it fits; 1 it does not, or there is no compiler; 2 wrong usage or config.
"""

import signal
import sys

from vit_jax import recipes
from vit_jax.config.tool_flags import ToolFlags, ending
from vit_jax.extras.compiled import absent
from vit_jax.process import console, text


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("compile_check", __doc__)
  add = result.add_argument
  add("--config", required=True, metavar="configs/NAME.py[:ARG]", help="the recipe")
  where = "KIND:AxB or KIND:AxBxC chips of TPUs, KIND:GPUS or KIND:HOSTSxGPUS (default: v3:16x16)"
  add("--topology", default="v3:16x16", help=where)
  breakdown = "where the time of a step goes, by category: launches, bytes, bound, and TPUs' cycles"
  add("--breakdown", action="store_true", help=breakdown)
  largest = (
    "report on the largest batch that fits: a multiple of 8 images a device, or a group of "
    "config.mesh.model, or 4, 2, 1"
  )
  add("--largest-batch", action="store_true", help=largest)
  result.add_settings()
  result.add_format("table", "json")
  return result


def main(arguments: list[str] | None = None):
  """Prints the report; see the exit status above."""
  absent.prepare()  # before a plugin may import JAX
  args, overrides = flags().parse_with_settings(arguments)
  signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own would wait for the compiler
  with ending("compile_check"):
    asked = recipes.resolve(args.config, overrides)
    from vit_jax.extras.compiled import report, words
    from vit_jax.extras.experiments.facts import decided

    config = decided(asked)
    row = report.report(config, args.topology, parts=args.breakdown, largest=args.largest_batch)
  if args.format == "json":
    print(text.json_text(row))
  else:
    print(words.table(row))
  if not row["fits"]:
    sys.exit(console.FAILED)
  sys.exit(console.DONE)
