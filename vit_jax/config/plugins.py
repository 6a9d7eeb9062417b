"""Modules of users that add their own parts to `vit_jax.registry` (config.plugins).

Only modules that the command line names are imported. Recorded settings may come from a stranger:
they are compared with what was imported, and import nothing.
"""

import importlib
import os
import re
import sys
from collections.abc import Iterator

from vit_jax.process.errors import ConfigError
from vit_jax.process.text import one_line, shown

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def load(text: str):
  """Imports modules, so that settings can name what they register.

  They are looked for as Python does, and then in the current folder.

  Args:
    text: their names, separated by commas; "": none.

  Raises:
    ConfigError: one is no name of a module, is not found, or cannot be imported.
  """
  names = list(names_in(text))
  if names and os.getcwd() not in sys.path:
    sys.path.append(os.getcwd())
  for name in names:
    try:
      importlib.import_module(name)
    except ModuleNotFoundError as error:
      if error.name is None or not f"{name}.".startswith(f"{error.name}."):
        raise ConfigError(f"config.plugins={name} cannot be imported: {error}.") from error
      raise ConfigError(
        f"config.plugins={name}: there is no module {error.name}; install it, or start the command "
        "in the folder that holds it."
      ) from error
    except Exception as error:  # of the user's own code
      reason = one_line(f"{type(error).__name__}: {error}")
      raise ConfigError(f"config.plugins={name} cannot be imported: {reason}.") from error


def check(text: str):
  """Checks that the modules which recorded settings need were imported.

  Raises:
    ConfigError: names those that were not.
  """
  if missing := [name for name in names_in(text) if name not in sys.modules]:
    raise ConfigError(
      f"the settings were recorded with --config.plugins={text}, and this command has not imported "
      f"{missing[0]}; if you trust it, name it on the command line too."
    )


def names_in(text: str) -> Iterator[str]:
  """The names of modules in the value of the setting.

  Raises:
    ConfigError: one is no name of a module.
  """
  for name in filter(None, str(text).split(",")):
    if not _MODULE.fullmatch(name):
      raise ConfigError(
        f"config.plugins={shown(text)}: {shown(name)} is no name of a module, such as "
        "my_package.my_module."
      )
    yield name
