"""Runs the Python files of users: recipes and studies."""

import contextlib
import functools
import inspect
import os
import runpy
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ml_collections

from vit_jax.config import overrides
from vit_jax.config.parsing import from_dict
from vit_jax.config.run import Config
from vit_jax.config.suggestions import missing_recipe
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import one_line
from vit_jax.storage import files


def run(path: str) -> dict[str, Any]:
  """The names that a file defines.

  Raises:
    ConfigError: it is no file, or cannot be run.
  """
  with blaming(path):
    files.open_file(path).close()  # running a FIFO would wait
    return runpy.run_path(path)


def load(recipe: str, texts: Mapping[str, str] | None = None) -> Config:
  """The config of a recipe, given as configs/NAME.py or configs/NAME.py:ARG.

  Args:
    recipe: its path and argument.
    texts: the settings of the command line, as for `overrides.replaced`.

  Raises:
    ConfigError: there is no such recipe, it fails with this argument, or a setting is wrong.
  """
  path, _, argument = recipe.partition(":")
  if not os.path.exists(path):
    raise ConfigError(missing_recipe(path))
  replace = functools.partial(overrides.replaced, texts=texts or {})
  return replace(from_dict(settings_of(path, argument, replace).to_dict()))


def settings_of(
  path: str, argument: str, replace: Callable[[Config], Config] = lambda config: config
) -> ml_collections.ConfigDict:
  """The settings that a recipe's function `get_config` returns; an empty argument is left out.

  If it has a parameter `replace`, it gets that function (vit_jax/recipes/following.py).

  Raises:
    ConfigError: the file cannot be run, or has no such function, or it returns something else.
  """
  get_config = run(path).get("get_config")
  if not callable(get_config):
    raise ConfigError(f"{path} defines no function get_config, which a recipe must have.")
  with blaming(path, argument):
    options = {}
    if "replace" in inspect.signature(get_config).parameters:
      options["replace"] = replace
    settings = get_config(*filter(None, [argument]), **options)
  if not isinstance(settings, ml_collections.ConfigDict):
    raise ConfigError(
      f"{path}: get_config returned {type(settings).__name__}; return "
      "vit_jax.config.to_config_dict(Config(...))."
    )
  return settings


@contextlib.contextmanager
def blaming(path: str, argument: str = "") -> Iterator[None]:
  """Around code of the file `path`: turns whatever it raises into one sentence with its line.

  The sentence names the argument too, if the code was called with one.
  Also SystemExit and KeyboardInterrupt: a file that ends the program must not look like success.

  Raises:
    ConfigError: the code raised anything; its own ConfigErrors are left as they are.
  """
  try:
    yield
  except ConfigError:
    raise
  except BaseException as error:
    message = type(error).__name__
    if words := _words(error):
      message += f": {words}"
    name = ":".join(filter(None, [path, argument]))
    raise ConfigError(f"{name} cannot be run{_line(path, error)}: {message}.") from error


def _words(error: BaseException) -> str:
  try:
    return one_line(str(error))
  except Exception:  # of the user's own class
    return ""


def _line(path: str, error: BaseException) -> str:
  frames = traceback.extract_tb(error.__traceback__)
  lines = [frame.lineno for frame in frames if frame.filename == path]
  if isinstance(error, SyntaxError) and error.filename == path:
    lines.append(error.lineno)
  if not lines:
    return ""
  return f" (line {lines[-1]})"
