"""Draws the packages and what they import: python tools/architecture.py --output FILE.svg.

A box is a package, with the first sentence of its docstring. An arrow leads to a package that it
imports; arrows that follow from others are left out. A package stands above all that it imports.
"""

import ast
import pathlib
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from vit_jax.config.tool_flags import ToolFlags, ending, folder, path
from vit_jax.process import console
from vit_jax.storage import files

ROOT = pathlib.Path(__file__).parents[1]
TOOLS = "tools"
OF_TOOLS = "The commands, each thin, and what is for development alone."
# Inches.
WIDTH = 4.0  # of a box
HEIGHT = 0.74
GAP = 0.3  # below a box
GUTTER = 1.4  # between the columns
COLOURS = ("#4269d0", "#d1751a", "#2e8b57", "#a83279", "#7a5cc4", "#8a6d1f", "#c23b3b", "#3a8fa3")


class Package(NamedTuple):
  """A package, or a module directly below vit_jax.

  Attributes:
    name: below vit_jax.
    purpose: the first sentence of its docstring.
    modules, lines: how many it has.
    imports: names of the packages that it imports.
  """

  name: str
  purpose: str
  modules: int
  lines: int
  imports: frozenset[str]


class Arrow(NamedTuple):
  """An import that is drawn."""

  source: str
  target: str


def packages() -> dict[str, Package]:
  """The packages of vit_jax and the tools, by name."""
  grouped = {TOOLS: sorted((ROOT / TOOLS).rglob("*.py"))}
  for file in sorted((ROOT / "vit_jax").rglob("*.py")):
    name = file.relative_to(ROOT / "vit_jax").parts[0].removesuffix(".py")
    if name != "__init__":
      grouped.setdefault(name, []).append(file)
  return {name: package(name, sources, set(grouped)) for name, sources in grouped.items()}


def package(name: str, sources: list[pathlib.Path], known: set[str]) -> Package:
  """A package of these files."""
  trees = [ast.parse(source.read_text()) for source in sources]
  imports = {other for tree in trees for other in imported(tree)} & known - {name}
  docstring = ast.get_docstring(trees[0]) or ""
  if name == TOOLS:
    docstring = OF_TOOLS
  purpose = " ".join(docstring.split()).partition(". ")[0].rstrip(".") + "."
  lines = sum(len(source.read_text().splitlines()) for source in sources)
  return Package(name, purpose, len(sources), lines, frozenset(imports))


def imported(tree: ast.Module) -> Iterable[str]:
  """The packages of vit_jax that a file imports, anywhere in the file."""
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name.split(".")[1] for alias in node.names if "vit_jax." in alias.name)
    elif isinstance(node, ast.ImportFrom) and node.module == "vit_jax":
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vit_jax."):
      yield node.module.split(".")[1]


def arrows(known: dict[str, Package]) -> list[Arrow]:
  """The imports that do not follow from others."""
  below = {name: reached(name, known) for name in known}
  return [
    Arrow(name, other)
    for name in sorted(known)
    for other in sorted(known[name].imports)
    if not any(other in below[between] for between in known[name].imports)
  ]


def reached(name: str, known: dict[str, Package]) -> set[str]:
  """All packages that a package imports, directly or through others."""
  below = set()
  todo = [name]
  while todo:
    new = known[todo.pop()].imports - below
    below |= new
    todo += new
  return below


def level(name: str, known: dict[str, Package]) -> int:
  """The length of the longest chain of imports that starts at a package."""
  return 1 + max((level(other, known) for other in known[name].imports), default=-1)


def boxes(known: dict[str, Package]) -> dict[str, tuple[int, int]]:
  """(column, row) of the packages: the longest chain of imports on the left, others beside it."""
  levels = {name: level(name, known) for name in known}
  chain = [max(sorted(levels), key=levels.get)]
  while known[chain[-1]].imports:
    last = chain[-1]
    below = [name for name in sorted(known[last].imports) if levels[name] == levels[last] - 1]
    chain.append(max(below, key=lambda name: known[name].lines))
  places = {}
  row = 0
  for name in chain:
    places[name] = (0, row)
    same = [other for other in levels if levels[other] == levels[name]]
    beside = sorted(other for other in same if other not in chain)
    places |= {other: (1, row + number) for number, other in enumerate(beside)}
    row += max(1, len(beside))
  return places


def draw(known: dict[str, Package], file: pathlib.Path):
  """Writes the picture, the same for the same code."""
  import matplotlib  # slow to import
  from matplotlib.figure import Figure

  places = boxes(known)
  rows = 1 + max(row for _, row in places.values())
  size = (2 * WIDTH + GUTTER, rows * (HEIGHT + GAP))
  figure = Figure(figsize=size)
  axes = figure.add_axes((0, 0, 1, 1), xlim=(0, size[0]), ylim=(size[1], 0))
  axes.axis("off")
  for name, place in places.items():
    draw_box(axes, known[name], place)
  for arrow in arrows(known):
    draw_arrow(axes, arrow, places)
  style = {"svg.fonttype": "none", "svg.hashsalt": "packages"}
  with matplotlib.rc_context(style), files.atomic_write(file) as partial:
    figure.savefig(partial, format="svg", metadata={"Date": None})


def corner(place: tuple[int, int]) -> tuple[float, float]:
  """The upper left corner of a box."""
  column, row = place
  return column * (WIDTH + GUTTER) + 0.05, row * (HEIGHT + GAP) + 0.05


def colour_of(place: tuple[int, int]) -> str:
  """The colour of a box's edge and of the arrows to it."""
  column, row = place
  return COLOURS[(row + 4 * column) % len(COLOURS)]


def draw_box(axes, package: Package, place: tuple[int, int]):
  """Draws a package: its name, purpose and size."""
  from matplotlib.patches import Rectangle

  x, y = corner(place)
  axes.add_patch(Rectangle((x, y), WIDTH - 0.1, HEIGHT, facecolor="#f7f8fa", edgecolor="#c4cad3"))
  axes.add_patch(Rectangle((x, y), 0.06, HEIGHT, facecolor=colour_of(place)))
  name = f"{package.name}.py" if package.modules == 1 else f"{package.name}/"
  size = f"{package.modules} module{'s' * (package.modules > 1)} · {package.lines:,} lines"
  purpose = textwrap.fill(package.purpose, 60, max_lines=2, placeholder=" …")
  axes.text(x + 0.16, y + 0.24, name, fontsize=11, weight="bold", gid=f"package {package.name}")
  axes.text(x + WIDTH - 0.2, y + 0.24, size, fontsize=8, color="#777", ha="right")
  axes.text(x + 0.16, y + 0.32, purpose, fontsize=8, color="#444", va="top")


def at_gutter(place: tuple[int, int]) -> float:
  """The x of a box's edge that faces the gutter."""
  x, _ = corner(place)
  column, _ = place
  if column == 0:
    return x + (WIDTH - 0.1)
  return x


def draw_arrow(axes, arrow: Arrow, places: dict[str, tuple[int, int]]):
  """Draws an arrow straight down to the next box of the column, else around through the gutter."""
  from matplotlib.patches import FancyArrowPatch

  source, target = places[arrow.source], places[arrow.target]
  x, y = corner(source)
  to_x, to_y = corner(target)
  if target == (source[0], source[1] + 1):
    begin = (x + WIDTH / 2, y + HEIGHT)
    end = (to_x + WIDTH / 2, to_y)
    bend = 0.0
  else:
    begin = (at_gutter(source), y + 0.6 * HEIGHT)
    end = (at_gutter(target), to_y + 0.3 * HEIGHT)
    bend = 0.15 if source[0] != target[0] else -0.3
    if source[0]:
      bend = -bend
  patch = FancyArrowPatch(
    begin,
    end,
    connectionstyle=f"arc3,rad={bend}",
    arrowstyle="-|>",
    mutation_scale=11,
    shrinkA=0,
    shrinkB=1,
    linewidth=1.4,
    color=colour_of(target),
    gid=f"{arrow.source} imports {arrow.target}",
  )
  axes.add_patch(patch)


def main(arguments: list[str] | None = None):
  """Draws."""
  flags = ToolFlags("architecture", __doc__, prog="python tools/architecture.py")
  flags.add_argument("--output", required=True, type=path, metavar="FILE.svg")
  args = flags.parse_args(arguments)
  with ending("architecture"):
    folder(args.output.parent, "--output")
    draw(packages(), args.output)


if __name__ == "__main__":
  console.of_tool()
  main()
