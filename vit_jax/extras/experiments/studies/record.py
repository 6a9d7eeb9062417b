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
PACKAGES = ("data", "learning", "models")  # whose code decides numbers
OBJECTIVE = "objective"  # code of an objective outside of them


def code(kinds: Iterable[str]) -> dict[str, str]:
  """A checksum of each package that decides the numbers of runs with these kinds of objective."""
  sums = {name: sum_of(ROOT / name) for name in PACKAGES}
  homes = {registry.OBJECTIVES.line(kind).partition(":")[0] for kind in kinds}
  outside = sorted(home for home in homes if home.split(".")[1] not in PACKAGES)
  if outside:
    sums[OBJECTIVE] = " ".join(sum_of(home_of(module)) for module in outside)
  return sums


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
  files = [place] if place.suffix else sorted(place.rglob("*.py"))
  for path in files:
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
