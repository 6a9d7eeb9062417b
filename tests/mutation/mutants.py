"""Mutants of a file: its source with one small change each.

The changes are those of mutmut, which cannot make them in decorated functions by itself, and names
of functions that are swapped for others with the same arguments.
"""

import dataclasses
import difflib
import hashlib
import pathlib
import random
from collections.abc import Iterator

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

# Functions that a wrong formula may use in place of one another; each is swapped for the
# one before it.
SWAPPED = (
  ("tanh", "sin", "cos"),
  ("exp", "expm1"),
  ("log", "log1p"),
  ("max", "min"),
  ("maximum", "minimum"),
  ("argmax", "argmin"),
  ("sum", "mean"),
  ("any", "all"),
  ("ceil", "floor"),
  ("zeros", "ones"),
  ("softmax", "sigmoid"),
  ("flatten", "nest"),
)
OTHER = {name: names[i - 1] for names in SWAPPED for i, name in enumerate(names)}

# Not part of what a file computes: types, imports, and what an error says.
LEFT_OUT = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.Raise)


@dataclasses.dataclass(frozen=True)
class Mutant:
  """A changed file.

  Attributes:
    file: its path below the repository's root.
    line: of the change.
    code: the source with the change.
    diff: lines that the change removes and adds.
  """

  file: str
  line: int
  code: str
  diff: str

  @property
  def key(self) -> str:
    """Tells mutants apart, also those of other versions of the file."""
    return hashlib.sha256(f"{self.file}\n{self.code}".encode()).hexdigest()[:16]


def of_file(root: pathlib.Path, file: str, *, sample: int | None, seed: int) -> Iterator[Mutant]:
  """A random sample of the mutants of a file, none twice; a larger one begins with the smaller.

  Args:
    root: the repository's.
    file: path below it.
    sample: at most so many; None: all.
    seed: draws the sample.
  """
  source = (root / file).read_text()
  wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
  positions = wrapper.resolve(PositionProvider)
  possible = [(node, other) for node in nodes(wrapper.module) for other in changes(node)]
  random.Random(f"{seed} {file}").shuffle(possible)
  seen = {source}
  for node, other in possible[:sample]:
    code = wrapper.module.deep_replace(node, other).code
    if code not in seen:
      seen.add(code)
      line = positions[node].start.line if node in positions else 0
      yield Mutant(file, line, code, difference(source, code))


def nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
  """The nodes at and below a node that may be changed."""
  if not isinstance(node, LEFT_OUT):
    yield node
    for child in node.children:
      yield from nodes(child)


def changes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
  """What a node may be replaced with."""
  for kind, operator in mutators.mutation_operators:
    if isinstance(node, kind):
      made = operator(node)
      yield from FILTERS[operator](node, made) if operator in FILTERS else made
  if isinstance(node, cst.Call):
    yield from swapped(node)


def swapped(call: cst.Call) -> Iterator[cst.Call]:
  """The call of another function."""
  name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
  if isinstance(name, cst.Name) and name.value in OTHER:
    yield call.with_deep_changes(name, value=OTHER[name.value])


def first(_, made: Iterator[cst.CSTNode]) -> list[cst.CSTNode]:
  """One change of a string; the others differ in the case of its letters."""
  return [*made][:1]


def not_shifting(call: cst.Call, made: Iterator[cst.CSTNode]) -> Iterator[cst.CSTNode]:
  """An argument of a call is None or, if it has a name, left out; the others keep their places."""
  for other in made:
    gone = [arg for arg in call.args if arg not in other.args]
    if len(other.args) == len(call.args) or gone[0].keyword or gone[0].star:
      yield other


FILTERS = {mutators.operator_string: first, mutators.operator_arg_removal: not_shifting}


def difference(old: str, new: str) -> str:
  """The lines that differ."""
  lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
  return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))
