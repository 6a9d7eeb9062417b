"""How a tool ends if it cannot go on: one line on stderr and a status, never a traceback."""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator

from vit_jax.config.command_line import FAILED, STOPPED, WRONG_USAGE
from vit_jax.config.errors import ConfigError, Stopped
from vit_jax.config.reading import expanded
from vit_jax.process.text import one_line

INTERRUPTED = 130  # as shells have it for a process that SIGINT ended


@contextlib.contextmanager
def ending(tool: str) -> Iterator[None]:
  """Turns what goes wrong inside into one line and the exit status.

  A ConfigError is wrong usage, 2; a run that a signal stopped is 75; whatever else the data, the
  disk or the machine cause is a failure, 1; Ctrl-C is 130.
  """
  try:
    yield
  except ConfigError as error:
    leave(tool, str(error), WRONG_USAGE)
  except Stopped as error:
    leave(tool, str(error), STOPPED)
  except MemoryError:
    leave(tool, "The memory of this machine does not suffice.", FAILED)
  except (OSError, RuntimeError, ValueError) as error:
    leave(tool, str(error), FAILED)
  except KeyboardInterrupt:
    leave(tool, "Interrupted.", INTERRUPTED)


def leave(tool: str, message: str, status: int):
  """Says one line on stderr and ends the program."""
  print(f"{tool}: {one_line(message)}", file=sys.stderr)
  sys.exit(status)


def folder(path: str | pathlib.Path, setting: str) -> pathlib.Path:
  """Makes a folder to write to, where it is not there.

  Args:
    path: the folder.
    setting: what names it, such as --output, for the message.

  Raises:
    ConfigError: it cannot be made, or not be written to.
  """
  path = expanded(path)
  try:
    path.mkdir(parents=True, exist_ok=True)
  except (OSError, ValueError) as error:
    reason = getattr(error, "strerror", None) or error
    raise ConfigError(f"{setting}: the folder {path} cannot be made: {reason}.") from error
  if not os.access(path, os.W_OK | os.X_OK):
    raise ConfigError(f"{setting}: the folder {path} cannot be written to.")
  return path
