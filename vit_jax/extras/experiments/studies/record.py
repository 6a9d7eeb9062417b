"""Which code made the numbers of a run: its commit, and checksums of what decides them."""

import ast
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence

from vit_jax import registry
from vit_jax.process import program
from vit_jax.storage import workdir
from vit_jax.storage.paths import Path

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Whose code decides numbers; of the weights, what fine-tuning changes.
OF_WEIGHTS = ("weights/fit.py", "weights/positions.py", "weights/resizing.py")
PLACES = ("data", "evaluation", "learning", "models", *OF_WEIGHTS)
OBJECTIVE = "objective"  # code of an objective outside of them


def code(kinds: Iterable[str]) -> dict[str, str]:
  """A checksum of each place whose code decides the numbers of runs with these kinds of objective.

  To an objective belongs what it imports from other extras.
  """
  sums = {name: sum_of(ROOT / name) for name in PLACES}
  modules = {registry.OBJECTIVES.line(kind).partition(":")[0] for kind in kinds}
  homes = {home_of(module) for module in modules if is_extra(module)}
  before = set()
  while before != homes:
    before = homes
    homes = homes.union(*map(imported, before))
  if homes:
    sums[OBJECTIVE] = " ".join(sum_of(home) for home in sorted(homes))
  return sums


def is_extra(module: str) -> bool:
  """Whether a module lies outside the core."""
  return module.split(".")[1] == "extras"


def imported(place: pathlib.Path) -> set[pathlib.Path]:
  """The files or folders of the extras that a file or a folder imports."""
  trees = [ast.parse(path.read_bytes()) for path in files_of(place)]
  imports = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
  found = set()
  for node in imports:
    for name in node.names:
      module = f"{node.module}.{name.name}"
      path = ROOT.joinpath(*module.split(".")[1:])
      if not path.with_suffix(".py").exists():
        module = node.module
      if module.startswith(f"{ROOT.name}.extras."):
        found.add(home_of(module))
  return found


def files_of(place: pathlib.Path) -> list[pathlib.Path]:
  """The Python files of a folder; of a file, this one."""
  return [place] if place.suffix else sorted(place.rglob("*.py"))


def home_of(module: str) -> pathlib.Path:
  """The file of a module of this package, or the folder if it shares one with its helpers."""
  path = ROOT.joinpath(*module.split(".")[1:])
  if path.parent.name == "extras":
    return path.with_suffix(".py")
  return path.parent


@functools.cache
def sum_of(place: pathlib.Path) -> str:
  """A checksum of the Python code of a file or a folder, whatever its comments and docstrings."""
  digest = hashlib.sha256()
  for path in files_of(place):
    meaning = ast.unparse(without_docstrings(ast.parse(path.read_bytes())))
    digest.update(f"{path.relative_to(place.parent)}\0{meaning}\0".encode())
  return digest.hexdigest()[:10]


def without_docstrings(tree: ast.AST) -> ast.AST:
  """A tree of code in which docstrings are empty."""
  for node in ast.walk(tree):
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
      node.body[0] = ast.Expr(ast.Constant(""))
  return tree


def origin(
  folders: Sequence[Path], kinds: Iterable[str], before: Mapping[str, str]
) -> dict[str, str]:
  """The columns `commit` and `code` of results.csv.

  Args:
    folders: the workdirs of the runs of a cell.
    kinds: of their objectives.
    before: an earlier row of the same runs; {}: there is none.

  Returns:
    The commit of the last start, "" if not known; and the result of `code` as JSON. If the runs
    were not all made by this code, it is that of the earlier row, or "".
  """
  starts = [start for folder in folders for start in workdir.read_starts(folder)]
  made = before.get("code", "")
  if not starts:
    return {"commit": before.get("commit", ""), "code": made}
  if all(start.get("code") == program.code() for start in starts):
    made = json.dumps(code(kinds))
  return {"commit": starts[-1].get("revision", ""), "code": made}
