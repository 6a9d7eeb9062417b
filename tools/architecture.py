"""Draws the packages and what they import: python tools/architecture.py --output FILE.svg.

A box is a package, with the first sentence of its docstring. An arrow leads to a package that it
imports; arrows that follow from others are left out. A package stands above all that it imports.
"""

import ast
import html
import pathlib
import textwrap
from collections.abc import Iterable
from typing import NamedTuple

from vit_jax.config.tool_ending import ending, folder
from vit_jax.config.tool_flags import ToolFlags, path
from vit_jax.process import console
from vit_jax.storage import files

ROOT = pathlib.Path(__file__).parents[1]
TOOLS, OF_TOOLS = "tools", "The commands, each thin, and what is for development alone."
WIDTH, HEIGHT, GAP = 400, 74, 30  # of a box, and below it, pixels
GUTTER, LANE, MARGIN = 116, 13, 24  # between the columns, of an arrow in it, around everything
FONT = "font-family='Helvetica, Arial, sans-serif'"
COLOURS = ("#4269d0", "#d1751a", "#2e8b57", "#a83279", "#7a5cc4", "#8a6d1f", "#c23b3b", "#3a8fa3")


class Package(NamedTuple):
  """A package, or a module that stands beside the packages.

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


class Box(NamedTuple):
  """Where a package is drawn: its column, 0 or 1, and its row from the top."""

  column: int
  row: int

  @property
  def left(self) -> int:
    """The x of its left side."""
    return MARGIN + self.column * (WIDTH + GUTTER)

  @property
  def top(self) -> int:
    """The y of its upper side."""
    return MARGIN + self.row * (HEIGHT + GAP)

  @property
  def colour(self) -> str:
    """Of its edge, and of the arrows to it."""
    return COLOURS[(self.row + 4 * self.column) % len(COLOURS)]


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
  imports = {part for tree in trees for part in imported(tree)} & known - {name}
  docstring = OF_TOOLS if name == TOOLS else ast.get_docstring(trees[0]) or ""
  purpose = " ".join(docstring.split()).partition(". ")[0].rstrip(".") + "."
  lines = sum(len(source.read_text().splitlines()) for source in sources)
  return Package(name, purpose, len(sources), lines, frozenset(imports))


def imported(tree: ast.Module) -> Iterable[str]:
  """The parts of vit_jax that a file names in an import, wherever in the file it stands."""
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
  """All that a package imports, and what that imports in turn."""
  below, todo = set(), [name]
  while todo:
    new = known[todo.pop()].imports - below
    below |= new
    todo += new
  return below


def level(name: str, known: dict[str, Package]) -> int:
  """The longest way of imports down from a package."""
  return 1 + max((level(other, known) for other in known[name].imports), default=-1)


def boxes(known: dict[str, Package]) -> dict[str, Box]:
  """The places of the packages: the longest way of imports on the left, the others beside it."""
  levels = {name: level(name, known) for name in known}
  way = [max(sorted(levels), key=levels.get)]
  while known[way[-1]].imports:
    below = [name for name in sorted(known[way[-1]].imports) if levels[name] == levels[way[-1]] - 1]
    way.append(max(below, key=lambda name: known[name].lines))
  places, row = {}, 0
  for name in way:
    places[name] = Box(0, row)
    beside = sorted(other for other in levels if levels[other] == levels[name] and other not in way)
    places |= {other: Box(1, row + number) for number, other in enumerate(beside)}
    row += max(1, len(beside))
  return places


def lanes(drawn: list[Arrow], places: dict[str, Box]) -> dict[Arrow, int]:
  """A lane in the gutter for each arrow that takes it; arrows of one lane do not overlap."""
  ends, by_arrow = [], {}
  for arrow in sorted(drawn, key=lambda one: (places[one.source].row, -places[one.target].row)):
    first, last = places[arrow.source].row, places[arrow.target].row
    lane = next((i for i, end in enumerate(ends) if end < first), len(ends))
    ends[lane : lane + 1] = [last]
    by_arrow[arrow] = lane
  return by_arrow


def svg(known: dict[str, Package]) -> str:
  """The picture."""
  places, drawn = boxes(known), arrows(known)
  straight = [arrow for arrow in drawn if is_straight(arrow, places)]
  aside = lanes([arrow for arrow in drawn if arrow not in straight], places)
  width = 2 * (MARGIN + WIDTH) + GUTTER
  height = 2 * MARGIN + max(box.top for box in places.values()) + HEIGHT - MARGIN
  parts = [
    f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {FONT}>",
    f"<rect width='{width}' height='{height}' fill='white'/>",
    *(marker(colour) for colour in COLOURS),
    *(straight_path(arrow, places) for arrow in straight),
    *(lane_path(arrow, lane, places, list(aside)) for arrow, lane in aside.items()),
    *(box_of(known[name], places[name]) for name in sorted(known)),
    "</svg>",
  ]
  return "\n".join(parts) + "\n"


def is_straight(arrow: Arrow, places: dict[str, Box]) -> bool:
  """Whether nothing stands between the two, one below the other."""
  source, target = places[arrow.source], places[arrow.target]
  between = range(source.row + 1, target.row)
  free = not any(box.column == source.column and box.row in between for box in places.values())
  return source.column == target.column and free


def marker(colour: str) -> str:
  """The head of arrows of a colour."""
  return (
    f"<marker id='{colour[1:]}' viewBox='0 0 10 10' refX='8.5' refY='5' markerWidth='7' "
    f"markerHeight='7' orient='auto'><path d='M0 0.8 L9.5 5 L0 9.2 z' fill='{colour}'/></marker>"
  )


def path_of(arrow: Arrow, places: dict[str, Box], way: str) -> str:
  """An arrow along a way, with its meaning as a tip."""
  colour = places[arrow.target].colour
  return (
    f"<path d='{way}' fill='none' stroke='{colour}' stroke-width='1.8' "
    f"marker-end='url(#{colour[1:]})'><title>{arrow.source} imports {arrow.target}</title></path>"
  )


def straight_path(arrow: Arrow, places: dict[str, Box]) -> str:
  """An arrow straight down."""
  source, target = places[arrow.source], places[arrow.target]
  x = source.left + WIDTH // 2
  return path_of(arrow, places, f"M{x} {source.top + HEIGHT} V{target.top - 2}")


def lane_path(arrow: Arrow, lane: int, places: dict[str, Box], aside: list[Arrow]) -> str:
  """An arrow through the gutter, with rounded corners."""
  source, target = places[arrow.source], places[arrow.target]
  x = MARGIN + WIDTH + 22 + lane * LANE
  out = [one for one in aside if one.source == arrow.source]
  into = [one for one in aside if one.target == arrow.target]
  half = HEIGHT // 2  # arrows come in above, and go out below; on the two sides not at one height
  begin = source.top + half + half * (1 + out.index(arrow)) // (1 + len(out))
  end = target.top + half * (1 + into.index(arrow)) // (1 + len(into)) + 10 - 16 * target.column
  inner = lambda box: box.left + (WIDTH if box.column == 0 else 0)
  to_lane, from_lane = (6 if x > inner(source) else -6), (6 if inner(target) > x else -6)
  gap = 2 if from_lane > 0 else -2
  return path_of(
    arrow,
    places,
    f"M{inner(source)} {begin} H{x - to_lane} q{to_lane} 0 {to_lane} 6 V{end - 6} "
    f"q0 6 {from_lane} 6 H{inner(target) - gap}",
  )


def box_of(package: Package, box: Box) -> str:
  """A package: its name, what it is for, its size."""
  size = f"{package.modules} module{'s' * (package.modules > 1)} · {package.lines:,} lines"
  name = f"{package.name}.py" if package.modules == 1 else f"{package.name}/"
  purpose = textwrap.wrap(package.purpose, 56)
  more = purpose[:2] if len(purpose) < 3 else [purpose[0], f"{purpose[1]} …"]
  sentence = "".join(
    f"<text x='{box.left + 16}' y='{box.top + 44 + 17 * i}' font-size='12.5' fill='#444'>"
    f"{html.escape(line, quote=False)}</text>"
    for i, line in enumerate(more)
  )
  return (
    f"<g><rect x='{box.left}' y='{box.top}' width='{WIDTH}' height='{HEIGHT}' rx='7' "
    f"fill='#f7f8fa' stroke='#c4cad3'/><rect x='{box.left}' y='{box.top}' width='6' "
    f"height='{HEIGHT}' rx='3' fill='{box.colour}'/>"
    f"<text x='{box.left + 16}' y='{box.top + 24}' font-size='16' font-weight='bold'>{name}</text>"
    f"<text x='{box.left + WIDTH - 12}' y='{box.top + 23}' font-size='12' text-anchor='end' "
    f"fill='#777'>{size}</text>{sentence}</g>"
  )


def main(arguments: list[str] | None = None):
  """Draws."""
  flags = ToolFlags("architecture", __doc__)
  flags.add_argument("--output", required=True, type=path, metavar="FILE.svg")
  args = flags.parse_args(arguments)
  with ending("architecture"):
    folder(args.output.parent, "--output")
    files.write_text(args.output, svg(packages()))


if __name__ == "__main__":
  console.of_tool()
  main()
