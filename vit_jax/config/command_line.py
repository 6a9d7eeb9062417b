"""The command line: --config=configs/NAME.py[:ARG] [--config.KEY=VALUE ...] to frozen settings."""

import itertools
import os
import sys

from absl import flags
from ml_collections import config_flags

from vit_jax import config as cfg
from vit_jax.config import python_file, recorded, suggestions
from vit_jax.process.text import listed, one_line, shown

_CONFIG = config_flags.DEFINE_config_file(
  "config", None, "The recipe, configs/NAME.py or configs/NAME.py:ARG."
)

DONE, FAILED, WRONG_USAGE, STOPPED = 0, 1, 2, 75
_HELP = {"--help", "--helpshort", "--helpfull", "--helpxml", "-help", "-?"}


def parse(argv: list[str]) -> list[str]:
  """Parses the command line; if it is wrong, prints one message and exits with status 2."""
  try:
    argv = with_recorded(argv)
    try_recipe(value_of("config", argv) or "")
    rest = flags.FLAGS(argv)
    if len(rest) > 1:
      raise cfg.ConfigError(f"{rest[1]!r} is not a flag; settings are given as --config.a.b=value.")
    if _CONFIG.value is None:
      raise cfg.ConfigError(
        "--config is missing; give a recipe, such as --config=configs/vit_digits.py, or, with "
        "--mode=evaluate, the --workdir of a run."
      )
    resolve()  # finds out whether the recipe is missing or wrong
  except SystemExit as end:  # absl exits with 1 after --help
    sys.exit(end.code if _HELP.isdisjoint(argv) else DONE)
  except Exception as error:  # a recipe is the user's own program and can raise anything
    leave(wrong_usage(argv, error), WRONG_USAGE)
  return rest


def try_recipe(recipe: str):
  """Runs a recipe, if there is one: the library of flags hides where an error comes from.

  Raises:
    ConfigError: it cannot be run.
  """
  path, _, argument = recipe.partition(":")
  if os.path.exists(path):
    python_file.settings_of(path, argument)


def with_recorded(argv: list[str]) -> list[str]:
  """The command line; to evaluate a workdir without --config, its own settings are added."""
  workdir = value_of("workdir", argv)
  if value_of("config", argv) is None and value_of("mode", argv) == "evaluate" and workdir:
    return [argv[0], f"--config={recorded.__file__}:{workdir}", *argv[1:]]
  return argv


def value_of(flag: str, argv: list[str]) -> str | None:
  """The value of a flag on a command line that is not parsed yet; None if the flag is absent.

  If the flag comes more than once, the last one counts, as when it is parsed.
  """
  found = None
  for argument, following in itertools.zip_longest(argv[1:], argv[2:]):
    name, equals, value = argument.partition("=")
    if name in (f"-{flag}", f"--{flag}"):
      found = value if equals else following
  return found


def wrong_usage(argv: list[str], error: Exception) -> str:
  """One sentence on what is wrong with the command line."""
  defaults = cfg.to_dict(cfg.Config())
  said = reason(error, argv)
  for argument in argv:
    path = argument.lstrip("-").removeprefix("config=").partition(":")[0]
    if said.endswith(f"No such file or directory: {path!r}"):
      return cfg.missing_recipe(path)
    key, _, value = argument.lstrip("-").partition("=")
    if key.startswith("config."):
      unknown, default = look_up(key.removeprefix("config."), defaults)
      if unknown:
        return unknown
      if isinstance(error, flags.IllegalFlagValueError) and argument.lstrip("-") in str(error):
        return f"{key}={shown(value)} cannot be read as {type(default).__name__}; try {default!r}."
      group = next((group for group in cfg.NAMED if key.startswith(f"{group}.")), None)
      name = key.removeprefix(f"{group}.").split(".")[0]
      if group and isinstance(error, KeyError) and repr(name) in "".join(map(str, error.args)):
        return not_in_recipe(group, name, value_of("config", argv))
  return said


def not_in_recipe(group: str, name: str, recipe: str | None) -> str:
  """Says which names of a group the recipe has, in place of one that it does not have."""
  names = ""
  if recipe:
    there = flags.FLAGS["config"].parser.parse(recipe)  # without what the command line replaces
    for part in group.split(".")[1:]:
      there = there[part]
    names = f", which has {listed(sorted(there)) or 'none'} there"
  return f"{group}.{name} is not in the recipe{names}; new names can only be added in the recipe."


def reason(error: Exception, argv: list[str]) -> str:
  """The last line of an error's message; the lines above it are a library's traceback.

  In a traceback, a recipe's ConfigError begins with the name of its class, which is removed. Line
  breaks in the arguments are escaped, so that they do not end a line of the message.
  """
  kind, text = cfg.ConfigError, str(error).strip() or type(error).__name__
  for argument in argv:
    for part in {argument, argument.lstrip("-").partition("=")[2]} - {""}:
      text = text.replace(part, one_line(part))
  line = text.splitlines()[-1].strip()
  return line.removeprefix(f"{kind.__module__}.{kind.__name__}: ")


def look_up(dotted: str, known: dict) -> tuple[str, object]:
  """(message, default) of a dotted key; the message is empty if every part of it is a setting."""
  path = "config"
  for part in dotted.split("."):
    if path in cfg.NAMED:
      path, known = f"{path}.{part}", cfg.NAMED[path]
      continue
    known = known if isinstance(known, dict) else {}
    if part not in known:
      return suggestions.unknown(path, part, known), None
    path, known = f"{path}.{part}", known[part]
  return "", known


def resolve() -> cfg.Config:
  """The config of the command line as frozen dataclasses."""
  return cfg.from_dict(cfg.replace_units(_CONFIG.value.to_dict(), sorted(given())))


def given() -> frozenset[str]:
  """The settings that the command line itself names, such as "data.image_size"."""
  return frozenset(config_flags.get_override_values(flags.FLAGS["config"]))


def recipe() -> str:
  """The value of --config, configs/NAME.py or configs/NAME.py:ARG."""
  return flags.FLAGS["config"].config_filename


def leave(message: str, status: int):
  """Prints one sentence on stderr and ends the program."""
  print(f"vit_jax: {one_line(message)}", file=sys.stderr, flush=True)
  sys.exit(status)
