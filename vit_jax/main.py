"""Trains or evaluates: python -m vit_jax.main --config=configs/NAME.py[:ARG] [--workdir=DIR].

Every setting of vit_jax/config.py can be replaced: --config.batch_size=512
--config.schedule.learning_rate=1e-3. Started again with the same workdir, a run resumes by itself.

Exit status: 0 done; 2 wrong usage or config; 75 stopped by a signal with its state saved, start it
again; 1 anything else.
"""

import functools
import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from vit_jax import config as cfg

_CONFIG = config_flags.DEFINE_config_file(
  "config", None, "The recipe, configs/NAME.py or configs/NAME.py:ARG."
)
_WORKDIR = flags.DEFINE_string(
  "workdir", None, "Folder of the run; the default is workdirs/NAME, with -ARG where there is one."
)
_MODE = flags.DEFINE_enum("mode", "train", ["train", "evaluate"], "What to do.")

DONE, FAILED, WRONG_USAGE, STOPPED = 0, 1, 2, 75


def parse(argv: list[str]) -> list[str]:
  """Parses the command line; leaves with status 2 and one message where it is wrong."""
  try:
    rest = flags.FLAGS(argv)
    if len(rest) > 1:
      raise cfg.ConfigError(f"{rest[1]!r} is not a flag; settings are given as --config.a.b=value.")
    if _CONFIG.value is None:
      raise cfg.ConfigError("--config is missing, such as --config=configs/vit_digits.py.")
    resolve()  # a recipe that is missing or wrong shows itself here
  except Exception as error:  # a recipe is a program of the user's: anything can go wrong in it
    leave(wrong_usage(argv, error), WRONG_USAGE)
  return rest


def wrong_usage(argv: list[str], error: Exception) -> str:
  """One sentence on what is wrong with the command line."""
  defaults = cfg.to_dict(cfg.Config())
  for argument in argv:
    key, _, value = argument.lstrip("-").partition("=")
    if key.startswith("config."):
      unknown = unknown_key(key.removeprefix("config."), defaults)
      if unknown:
        return unknown
      if isinstance(error, flags.IllegalFlagValueError) and argument.lstrip("-") in str(error):
        default = functools.reduce(lambda node, part: node[part], key.split(".")[1:], defaults)
        return f"{key}={value!r} cannot be read as {type(default).__name__}; try {default!r}."
  return reason(error)


def reason(error: Exception) -> str:
  """The last line of an error's message; the lines above are a library's traceback."""
  return (str(error).strip() or type(error).__name__).splitlines()[-1].strip()


def unknown_key(dotted: str, known: dict) -> str:
  """Says which part of a dotted key is not a setting; empty where all are."""
  path = "config"
  for part in dotted.split("."):
    if path == "config.data.evaluate":
      return ""
    if not isinstance(known, dict) or part not in known:
      return f"{path}.{part} is not a setting; nearest: {cfg.nearest(part, known)}."
    path, known = f"{path}.{part}", known[part]
  return ""


def resolve() -> cfg.Config:
  """The config of the command line as frozen dataclasses."""
  overridden = list(config_flags.get_override_values(flags.FLAGS["config"]))
  return cfg.from_dict(cfg.replace_units(_CONFIG.value.to_dict(), overridden))


def default_workdir(config_flag: str) -> pathlib.Path:
  """workdirs/NAME, or workdirs/NAME-ARG, for --config=configs/NAME.py[:ARG]."""
  path, _, argument = config_flag.partition(":")
  return pathlib.Path("workdirs") / "-".join(filter(None, [pathlib.Path(path).stem, argument]))


def leave(message: str, status: int):
  """Says one sentence on stderr and ends the program."""
  print(f"vit_jax: {message}", file=sys.stderr, flush=True)
  sys.exit(status)


def main(_):
  """Runs the chosen mode; the heavy imports come after the command line has been accepted."""
  from vit_jax import launch

  logging.set_verbosity(logging.WARNING)  # orbax tells of each of its steps otherwise
  try:
    folder = pathlib.Path(_WORKDIR.value or default_workdir(flags.FLAGS["config"].config_filename))
    finished = launch.launch(resolve(), folder, mode=_MODE.value)
  except cfg.ConfigError as error:
    leave(str(error), WRONG_USAGE)
  except cfg.RunError as error:
    leave(str(error), FAILED)
  sys.exit(DONE if finished else STOPPED)


def run():
  """The console entry point."""
  app.run(main, flags_parser=parse)


if __name__ == "__main__":
  run()
