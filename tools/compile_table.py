"""Compiles the recipes of Tables 3, 4 and 6 for several TPU slices: docs/compiled.{csv,md}.

python tools/compile_table.py [--recipes=vit_h14] [--topologies=v3:16x16,v5e:16x16] [--jobs=2]

Each row is the result of tools/compile_check.py. Rows that docs/compiled.csv already holds are not
compiled again; to compile a row again, remove its line. All rows take hours on two cores. With
LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=thp:always,dirty_decay_ms:60000 (Debian: libjemalloc2) the
row of ViT-B/32 for v4:4x4x4 took 93 s of CPU time instead of 144 s, with the same result.
"""

from compiled import compiled_recipes
from compiled.compiled_recipes import TOPOLOGIES
from vit_jax.config import ConfigError
from vit_jax.config.tool_ending import ending
from vit_jax.config.tool_flags import ToolFlags, whole
from vit_jax.process import console, exit_status
from vit_jax.storage import files


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("compile_table", __doc__)
  add = result.add_argument
  add(
    "--recipes", "--only", default="", metavar="TEXT", help="recipes with this text in their name"
  )
  add("--topologies", default=",".join(TOPOLOGIES), metavar="A,B,...", help="default: all of them")
  add("--jobs", type=whole(1, 1024), default=1, help="compilations at a time")
  return result


def wanted(args, rows: list[dict]) -> list[tuple[str, str]]:
  """The pairs of recipe and topology to compile.

  Raises:
    ConfigError: an unknown topology, or no recipe has this name.
  """
  topologies = args.topologies.split(",")
  unknown = set(topologies) - set(TOPOLOGIES)
  if unknown:
    raise ConfigError(
      f"--topologies: {', '.join(sorted(unknown))} is none of {', '.join(TOPOLOGIES)}."
    )
  known = compiled_recipes.recipes()
  if not any(args.recipes in recipe for recipe in known):
    raise ConfigError(
      f"--recipes={args.recipes}: no recipe's name holds it; the names: {', '.join(known)}."
    )
  return compiled_recipes.missing(rows, topologies, args.recipes)


def main(arguments: list[str] | None = None):
  """Compiles the missing rows and writes both files after each row."""
  args = flags().parse_args(arguments)
  with ending("compile_table"), files.one_writer(compiled_recipes.CSV):
    rows = compiled_recipes.read()
    pairs, count = wanted(args, rows), 0
    for made in compiled_recipes.complete(rows, pairs, jobs=args.jobs):
      count += 1
      print(f"{count}/{len(pairs)} {made}", flush=True)
  if count < len(pairs):
    missing = f"{len(pairs) - count} of {len(pairs)} rows are missing: see above."
    console.leave(missing, exit_status.FAILED, "compile_table")


if __name__ == "__main__":
  console.of_tool()
  main()
