"""Compiles every recipe of Tables 3 and 4 for several TPU slices: docs/compiled.{csv,md}.

python tools/compile_table.py [--recipes=vit_h14] [--topologies=v3:16x16,v5e:16x16] [--jobs=2]

Each row is what tools/compile_check.py says; what docs/compiled.csv holds already is not compiled
again: remove its line, or the file, to have it made anew. Hours for all rows on two cores. With
LD_PRELOAD=libjemalloc.so.2 MALLOC_CONF=thp:always,dirty_decay_ms:60000 (Debian: libjemalloc2) one
row, ViT-B/32 for v4:4x4x4, took 93 s of CPU time in place of 144 s, and came out the same.
"""

from vit_jax.config import ConfigError
from vit_jax.config.tool_ending import ending, leave
from vit_jax.config.tool_flags import ToolFlags, whole
from vit_jax.process import console
from vit_jax.tpu import compiled_recipes
from vit_jax.tpu.compiled_recipes import TOPOLOGIES


def flags() -> ToolFlags:
  """The command line."""
  result = ToolFlags("compile_table", __doc__)
  add = result.add_argument
  add("--recipes", "--only", default="", metavar="TEXT", help="those whose name holds this text")
  add("--topologies", default=",".join(TOPOLOGIES), metavar="A,B,...", help="default: all of them")
  add("--jobs", type=whole(1, 1024), default=1, help="compilations at a time")
  return result


def wanted(args, rows: list[dict]) -> list[tuple[str, str]]:
  """The recipes and topologies that are to be compiled.

  Raises:
    ConfigError: there are no such ones.
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
  """Compiles what is missing and writes both files after each row."""
  args = flags().parse_args(arguments)
  with ending("compile_table"):
    rows = compiled_recipes.read()
    pairs, count = wanted(args, rows), 0
    for made in compiled_recipes.complete(rows, pairs, jobs=args.jobs):
      count += 1
      print(f"{count}/{len(pairs)} {made}", flush=True)
  if count < len(pairs):
    leave("compile_table", f"{len(pairs) - count} of {len(pairs)} rows are missing: see above.", 1)


if __name__ == "__main__":
  console.of_tool()
  main()
