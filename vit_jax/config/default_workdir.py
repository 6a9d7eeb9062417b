"""The folder of a run without --workdir: each recipe, with each argument, has one of its own."""

import hashlib
import os
import pathlib
import re

from vit_jax.config.command_line import value_of
from vit_jax.config.recipe_file import in_configs
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import quoted
from vit_jax.storage import files, workdir
from vit_jax.storage.workdir import CHECKPOINTS, STARTS

FOLDER = pathlib.Path("workdirs")
LONGEST = 200  # bytes of a name; file systems allow 255
_PLAIN = re.compile(r"configs/\w+\.py")
_SUM = re.compile(r".*-[0-9a-f]{10}")


def default_folder(recipe: str) -> tuple[pathlib.Path, str]:
  """The folder for --config=RECIPE, and a sentence to show; "" if there is nothing to say.

  A run in the folder that earlier versions chose goes on there.

  Raises:
    ConfigError: the folder holds a run of another recipe.
    CannotReadError: the storage does not say which run a folder holds.
  """
  folder = default(recipe)
  earlier = FOLDER / readable(recipe)
  if _holds_run(folder):
    known = _recipes_in(folder)
    if known and _identity(recipe) not in map(_identity, known):
      raise ConfigError(
        f"{folder}, the folder for {recipe}, holds a run of {known[-1]}; give this run another "
        "folder by --workdir."
      )
    return folder, ""
  if earlier == folder or not _can_be_folder(earlier) or not _holds_run(earlier):
    return folder, ""
  known = _recipes_in(earlier)
  if _identity(recipe) in map(_identity, known):
    words = f"Goes on in {earlier}, where this run was begun; a new one would be in {folder}."
    return earlier, words
  other = f"a run of {known[-1]}" if known else "a run whose recipe is not recorded"
  return folder, (
    f"This run is in {folder}. {earlier}, which earlier versions took for {recipe}, holds {other}; "
    f"to go on with that one, give {quoted(f'--workdir={earlier}')}."
  )


def default(recipe: str) -> pathlib.Path:
  """The folder for configs/NAME.py[:ARG]: workdirs/NAME[-ARG], where no other recipe has that name.

  Any other recipe, such as one with a slash in ARG, gets a sum of its path and argument behind it.
  """
  path, argument = _identity(recipe)
  name = readable(recipe)
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
  """The file of a recipe, as seen from the current folder, and its argument."""
  path, _, argument = recipe.partition(":")
  return os.path.relpath(in_configs(path) or "."), argument


def _can_be_folder(path: pathlib.Path) -> bool:
  return path.parent == FOLDER and path.name != ".." and len(os.fsencode(path.name)) <= 255


def _holds_run(folder: pathlib.Path) -> bool:
  return files.is_file(folder / STARTS) or files.is_folder(folder / CHECKPOINTS)


def _recipes_in(folder: pathlib.Path) -> list[str]:
  """The recipes that the starts of a run name."""
  commands = [start.get("command") for start in workdir.read_starts(folder)]
  texts = [list(map(str, command)) for command in commands if isinstance(command, list)]
  return [recipe for command in texts if (recipe := value_of("config", command))]
