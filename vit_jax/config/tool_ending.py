"""How a tool ends after an error: one line on stderr and an exit status, never a traceback."""

import contextlib
from collections.abc import Iterator

from vit_jax.process import console, exit_status, limits, variables
from vit_jax.process.errors import ConfigError, Stopped
from vit_jax.storage import files
from vit_jax.storage.paths import Path, path_of


@contextlib.contextmanager
def ending(tool: str) -> Iterator[None]:
  """Turns an error inside into one line on stderr and an exit status.

  Variables that `process.variables` refuses are an error too. The status is 2 for a ConfigError
  (wrong usage), 75 for a run that a signal stopped, 130 for Ctrl-C, and 1 for any other error of
  the data, the disk or the machine.
  """
  try:
    variables.check()
    with variables.said_of_devices():
      yield
  except ConfigError as error:
    console.leave(str(error), exit_status.WRONG_USAGE, tool)
  except Stopped as error:
    console.leave(str(error), exit_status.STOPPED, tool)
  except (MemoryError, OSError, RuntimeError, ValueError) as error:
    console.leave(limits.exhausted(error) or str(error), exit_status.FAILED, tool)
  except KeyboardInterrupt:
    console.leave("Interrupted.", exit_status.INTERRUPTED, tool)


def folder(path: str | Path, setting: str) -> Path:
  """Makes a folder to write to, if it does not exist.

  Args:
    path: the folder.
    setting: flag that gave the path, such as --output, for the message.

  Raises:
    ConfigError: the folder cannot be made or cannot be written to.
  """
  path = path_of(path)
  try:
    files.make_folder(path)
  except (OSError, ValueError) as error:
    reason = getattr(error, "strerror", None) or error
    raise ConfigError(f"{setting}: the folder {path} cannot be made: {reason}.") from error
  try:
    files.check_writable(path)
  except OSError as error:
    raise ConfigError(f"{setting}: the folder {path} cannot be written to.") from error
  return path
