"""The folder of a run without --workdir: each recipe, with each argument, has one of its own."""

import hashlib
import itertools
import os
import pathlib
import re
from collections.abc import Iterator

from vit_jax.config.command_line import value_of
from vit_jax.config.recipe_file import OF_DATA, in_configs, is_installed
from vit_jax.process.errors import ConfigError
from vit_jax.storage import files, workdir

FOLDER = pathlib.Path("workdirs")
LONGEST = 200  # bytes of a name; file systems allow 255
_PLAIN = re.compile(r"configs/\w+\.py")
_SUM = re.compile(r".*-[0-9a-f]{10}")


def default_folder(recipe: str) -> pathlib.Path:
  """The folder for --config=RECIPE; the one that version 0.2.0 chose, if only that holds the run.

  Raises:
    ConfigError: the folder holds a run of another recipe.
    CannotReadError: the storage does not say which run a folder holds.
  """
  folder = default(recipe)
  known = _recipes_in(folder)
  if known and _identity(recipe) not in map(_identity, known):
    raise ConfigError(
      f"{folder}, the folder for {recipe}, holds a run of {known[-1]}; give this run another "
      "folder by --workdir."
    )
  if known or files.is_folder(folder / workdir.CHECKPOINTS):
    return folder
  for spelled, earlier in _in_0_2_0(recipe):
    if _identity(spelled) in map(_identity, _recipes_in(earlier)):
      return earlier
  return folder


def _in_0_2_0(recipe: str) -> Iterator[tuple[str, pathlib.Path]]:
  """How version 0.2.0 may have spelled a recipe, and the folder that it chose then.

  It kept the slashes behind names of folders, and did not tell configs/train.py of the current
  folder from the installed one.
  """
  for first, last in itertools.product(["", "/"], repeat=2):
    spelled = recipe.replace(",", f"{first},", 1) + last
    path, argument = _identity(spelled)
    yield spelled, _folder(os.path.normpath(path), argument, readable(spelled))


def default(recipe: str) -> pathlib.Path:
  """The folder for configs/NAME.py[:ARG]: workdirs/NAME[-ARG], where no other recipe has that name.

  Any other recipe, such as one with a slash in ARG, gets a sum of its path and argument behind it.
  """
  return _folder(*_identity(recipe), readable(recipe))


def _folder(path: str, argument: str, name: str) -> pathlib.Path:
  plain = _PLAIN.fullmatch(path) and "/" not in argument and name.isprintable()
  if plain and not _SUM.fullmatch(name) and len(os.fsencode(name)) <= LONGEST:
    return FOLDER / name
  text = "".join(c if c.isprintable() else "_" for c in name).lstrip(".-") or "recipe"
  short = text.encode()[: LONGEST - 11].decode(errors="ignore")
  sum_ = hashlib.sha256(os.fsencode(f"{path}:{argument}")).hexdigest()
  return FOLDER / f"{short}-{sum_[:10]}"


def readable(recipe: str) -> str:
  """NAME, or NAME-ARG with an underscore for each slash; two recipes may have the same."""
  path, _, argument = recipe.partition(":")
  return "-".join(filter(None, [pathlib.Path(path).stem, argument.replace("/", "_")]))


def _identity(recipe: str) -> tuple[str, str]:
  """The file of a recipe, as seen from the current folder, and its argument.

  configs/train.py is the installed file, as for the name train, and a file of the current folder
  is ./configs/train.py; so are the others `OF_DATA`.
  """
  path, _, argument = recipe.partition(":")
  if path in OF_DATA:
    return f"configs/{path}.py", argument
  path = os.path.relpath(in_configs(path) or ".")
  of_data = path in [f"configs/{name}.py" for name in OF_DATA]
  if of_data and not is_installed(path):
    path = os.path.join(os.curdir, path)
  return path, argument


def _recipes_in(folder: pathlib.Path) -> list[str]:
  """The recipes that the starts of a run name."""
  commands = [start.get("command") for start in workdir.read_starts(folder)]
  texts = [list(map(str, command)) for command in commands if isinstance(command, list)]
  return [recipe for command in texts if (recipe := value_of("config", command))]
