"""Compiles recipes for TPU slices (docs/compiled.md) or for machines of 8 GPUs (docs/gpus.md).

python tools/compile_table.py [--platform=tpu] [--recipes=vit_h14] [--topologies=v3:16x16]

Each row is the result of tools/compile_check.py: for TPUs, of the recipes of Tables 3, 4 and 6 as
they are; for GPUs, of some of them with the largest batch that fits. Rows that are missing are made
first, then those whose step has changed since: the CSV file beside the page has a name for what the
compiler was given (made_from), and it is compared with today's. All rows take hours on two cores.
With libjemalloc.so.2 (Debian: libjemalloc2) in LD_PRELOAD and
MALLOC_CONF=thp:always,dirty_decay_ms:60000 the row of ViT-B/32 for v4:4x4x4 took 93 s of CPU time
instead of 144 s, with the same result.
"""

from vit_jax.config import ConfigError
from vit_jax.config.tool_flags import ToolFlags, ending, whole
from vit_jax.extras.compiled import absent, compiled_on_gpus, compiled_recipes
from vit_jax.extras.compiled.table import Row, Table
from vit_jax.process import console
from vit_jax.storage import files

TABLES = {"tpu": compiled_recipes.TABLE, "gpu": compiled_on_gpus.TABLE}


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("compile_table", __doc__, prog="python tools/compile_table.py")
  add = result.add_argument
  add("--recipes", default="", metavar="TEXT", help="recipes with this text in their name")
  add("--platform", choices=tuple(TABLES), default="tpu", help="which table (default: tpu)")
  add("--topologies", metavar="A,B,...", help="default: all of the table")
  add("--jobs", type=whole(1, 1024), default=1, help="compilations at a time")
  return result


def wanted(args, table: Table, rows: list[Row]) -> list[tuple[str, str]]:
  """The pairs of recipe and topology to compile.

  Raises:
    ConfigError: an unknown topology, or no recipe has this name.
  """
  pairs = table.pairs()
  known = list(dict.fromkeys(recipe for recipe, _ in pairs))
  everywhere = list(dict.fromkeys(topology for _, topology in pairs))
  topologies = everywhere
  if args.topologies:
    topologies = args.topologies.split(",")
  unknown = set(topologies) - set(everywhere)
  if unknown:
    raise ConfigError(
      f"--topologies: {', '.join(sorted(unknown))} is none of {', '.join(everywhere)}."
    )
  if not any(args.recipes in recipe for recipe in known):
    raise ConfigError(
      f"--recipes={args.recipes}: no recipe's name holds it; the names: {', '.join(known)}."
    )
  return table.missing(rows, topologies, args.recipes)


def main(arguments: list[str] | None = None):
  """Compiles the missing and the old rows, and writes both files after each row."""
  args = flags().parse_args(arguments)
  table = TABLES[args.platform]
  with ending("compile_table"), files.one_writer(table.csv):
    rows = table.read()
    pairs = wanted(args, table, rows)
    count = 0
    for made in table.complete(rows, pairs, jobs=args.jobs):
      count += 1
      print(f"{count}/{len(pairs)} {made}", flush=True)
  if count < len(pairs):
    missing = f"{len(pairs) - count} of {len(pairs)} rows are missing: see above."
    console.leave(missing, console.FAILED, "compile_table")


if __name__ == "__main__":
  console.of_tool()
  absent.prepare()
  main()
