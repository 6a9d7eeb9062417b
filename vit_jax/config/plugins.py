"""Modules of users that add their own parts to `vit_jax.registry` (config.plugins).

Only modules that the command line names are imported. Recorded settings may come from a stranger:
they are compared with what was imported, and import nothing.
"""

import contextlib
import importlib
import os
import re
import sys
from collections.abc import Iterator

from vit_jax import registry
from vit_jax.process import program
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
  if names:
    program.check_libraries()  # a plugin may import JAX, which aborts for some of them
  for name in names:
    before = _lines()
    with _blamed(name):
      importlib.import_module(name)
    for lines, key in _lines() - before:
      with _blamed(name):
        REGISTRIES[lines][key]


REGISTRIES = {name: x for name, x in vars(registry).items() if isinstance(x, registry.Registry)}


def _lines() -> set[tuple[str, str]]:
  """The lines of all registries."""
  return {(name, key) for name, lines in REGISTRIES.items() for key in lines}


@contextlib.contextmanager
def _blamed(name: str) -> Iterator[None]:
  """Around the import of a plugin: turns whatever it raises into one sentence.

  Also SystemExit: a module that ends the program must not look like success.
  """
  try:
    yield
  except ModuleNotFoundError as error:
    if error.name is None or not f"{name}.".startswith(f"{error.name}."):
      raise ConfigError(f"config.plugins={name} cannot be imported: {error}.") from error
    raise ConfigError(
      f"config.plugins={name}: there is no module {error.name}; install it, or start the command "
      "in the folder that holds it."
    ) from error
  except (Exception, SystemExit) as error:  # of the user's own code
    reason = one_line(f"{type(error).__name__}: {error}")
    raise ConfigError(f"config.plugins={name} cannot be imported: {reason}.") from error


def with_imported(text: str) -> str:
  """config.plugins, with the modules that a program of the user's has imported itself.

  They are those outside of this package that the registries name. For a module that is imported
  only when its part is used, its nearest imported package stands. A program that registers parts of
  its own has no module that another program could import, so it is left out.

  Args:
    text: config.plugins, whose packages stand for all of their modules.
  """
  given = list(names_in(text))
  named = {_imported(REGISTRIES[lines].line(key).partition(":")[0]) for lines, key in _lines()}
  for name in sorted(named - {"", "__main__"}):
    if not any(f"{name}.".startswith(f"{package}.") for package in ("vit_jax", *given)):
      given.append(name)
  return ",".join(given)


def _imported(module: str) -> str:
  """The module, or the nearest package of it, that is imported; "" if none is."""
  while module and module not in sys.modules:
    module = module.rpartition(".")[0]
  return module


def missing(text: str) -> list[str]:
  """The modules of config.plugins that are not imported.

  Raises:
    ConfigError: one is no name of a module.
  """
  return [name for name in names_in(text) if name not in sys.modules]


def check(text: str):
  """Checks that the modules of config.plugins were imported.

  Raises:
    ConfigError: names one that was not.
  """
  if names := missing(text):
    raise ConfigError(
      f"these settings were recorded with config.plugins={shown(text)}, and {shown(names[0])} is "
      "not imported; if you trust it, name it by --config.plugins (tools: --plugins), or import it."
    )


def check_recipe(text: str, given: str, recipe: str):
  """Checks that a recipe names no plugins of its own.

  Args:
    text: config.plugins.
    given: the same on the command line.
    recipe: for the message.

  Raises:
    ConfigError: it does.
  """
  if text != given:
    raise ConfigError(
      f"{recipe} sets config.plugins={shown(text)}, and only the command line can name modules: "
      f"leave it out of the recipe and add --config.plugins={text}."
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
