"""The command line: --config=configs/NAME.py[:ARG] [--config.KEY=VALUE ...] to frozen settings."""

import itertools
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from absl import flags

from vit_jax.config import plugins, recipe_file, recorded
from vit_jax.config.run import Config
from vit_jax.process import console
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import quoted
from vit_jax.storage.paths import path_of

_RECIPE = flags.DEFINE_string(
  "config",
  None,
  "The recipe: NAME or NAME:ARG of this project, or a path, such as configs/NAME.py:ARG.",
)

_HELP = {"--help", "--helpshort", "--helpfull", "--helpxml", "-help", "-?"}


class CommandLine(NamedTuple):
  """A parsed command line.

  Attributes:
    config: the settings of the run.
    recipe: the value of --config; "" for the recorded settings of a workdir.
    given: the settings that the command line itself names, such as "data.image_size", or that
      another library's name of a model stands for.
  """

  config: Config
  recipe: str
  given: frozenset[str]


def refuse(refusal: Exception) -> NoReturn:
  """Prints why the command line is wrong, and exits with status 2."""
  console.leave(str(refusal), console.WRONG_USAGE)


def parse(argv: list[str], refuse: Callable[[Exception], NoReturn] = refuse) -> CommandLine:
  """Parses the command line; if it is wrong, `refuse` ends the program."""
  try:
    texts, others = recipe_file.split_settings(argv[1:])
    plugins.load(texts.get("plugins", ""))
    rest = flags.FLAGS([argv[0], *others])
    if len(rest) > 1:
      raise ConfigError(f"{rest[1]!r} is not a flag; settings are given as --config.a.b=value.")
    recipe = _RECIPE.value
    if recipe is None:
      config = recipe_file.replaced(recipe_of(argv), texts)
    else:
      config = recipe_file.load(recipe, texts)
      plugins.check_recipe(config.plugins, texts.get("plugins", ""), recipe)
    return CommandLine(config, recipe or "", frozenset(recipe_file.in_our_names(texts)))
  except SystemExit as end:  # absl exits with 1 after --help
    if _HELP.isdisjoint(argv):
      sys.exit(end.code)
    sys.exit(console.DONE)
  except (ConfigError, flags.Error) as error:
    refuse(error)


def recipe_of(argv: list[str]) -> Config:
  """The settings of a command line without --config: those of the workdir to evaluate."""
  workdir = value_of("workdir", argv)
  if value_of("mode", argv) != "evaluate" or not workdir:
    raise ConfigError(
      "--config is missing; give a recipe, such as --config=configs/vit_digits.py, or, with "
      "--mode=evaluate, the --workdir of a run."
    )
  otherwise = (
    "give --config=configs/NAME.py, or, of weights that are no run, the images too: "
    f"vit-jax evaluate {quoted(workdir)} DATA"
  )
  return recorded.read_config(path_of(workdir), otherwise)


def value_of(flag: str, argv: list[str]) -> str | None:
  """The value of a flag on a command line that is not parsed yet; None if the flag is absent.

  If the flag comes more than once, the last one counts, as when it is parsed.
  """
  last = None
  for argument, following in itertools.zip_longest(argv[1:], argv[2:]):
    name, equals, value = argument.partition("=")
    if name in (f"-{flag}", f"--{flag}"):
      last = value if equals else following
  return last
