"""Runs the Python files of users: recipes and studies."""

import contextlib
import runpy
import traceback
from collections.abc import Iterator
from typing import Any

from vit_jax.config.errors import ConfigError
from vit_jax.process.text import one_line


def run(path: str) -> dict[str, Any]:
  """The names that a file defines.

  Raises:
    ConfigError: it cannot be run.
  """
  with blaming(path):
    return runpy.run_path(path)


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
    kind, words = type(error).__name__, one_line(str(error))
    said = f"{kind}: {words}" if words else kind
    name = ":".join(filter(None, [path, argument]))
    raise ConfigError(f"{name} cannot be run{_line(path, error)}: {said}.") from error


def _line(path: str, error: BaseException) -> str:
  frames = traceback.extract_tb(error.__traceback__)
  lines = [frame.lineno for frame in frames if frame.filename == path]
  if isinstance(error, SyntaxError) and error.filename == path:
    lines.append(error.lineno)
  return f" (line {lines[-1]})" if lines else ""
