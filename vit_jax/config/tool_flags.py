"""The flags of the tools, one sentence for each mistake, and how a tool ends after an error.

It ends with one line on stderr and an exit status, never with a traceback.
"""

import argparse
import contextlib
import functools
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from vit_jax.config import plugins
from vit_jax.config.fields import MAX_SIDE, Size, read_size, sides
from vit_jax.config.suggestions import similar
from vit_jax.process import console, machine, program
from vit_jax.process.errors import ConfigError, Stopped
from vit_jax.registry import WEIGHT_FORMATS
from vit_jax.storage import files
from vit_jax.storage.paths import Path, local_path, path_of

SETTING = "--config."


class ToolFlags(argparse.ArgumentParser):
  """The flags of a command of vit-jax, or of another tool.

  Wrong usage prints one sentence and exits with status 2. Flags may also be spelt with underscores.
  """

  def __init__(self, name: str, description: str | None = None, **options):
    """Makes a parser without flags.

    Args:
      name: of the tool.
      description: text for --help, the module's docstring.
      **options: for argparse, which makes the parsers of subcommands itself.
    """
    super().__init__(
      prog=options.pop("prog", f"vit-jax {name.replace('_', '-')}"),
      description=description,
      formatter_class=argparse.RawDescriptionHelpFormatter,
      allow_abbrev=False,
      **options,
    )
    self._name = name

  def add_commands(self, dest: str):
    """Adds subcommands; `add_parser` of the result adds each one."""
    kind = functools.partial(ToolFlags, self._name)
    return self.add_subparsers(dest=dest, required=True, parser_class=kind)

  def add_source(self, **options):
    """Adds --source: the weights, in any supported form; and --plugins."""
    self.add_argument(
      "--source",
      type=source,
      metavar="PATH",
      help=f"a workdir, a checkpoint, or weights of the formats {', '.join(WEIGHT_FORMATS)}",
      **options,
    )
    self.add_plugins()

  def add_plugins(self):
    """Adds --plugins, for tools that read runs; they are imported before other flags are read."""
    self.add_argument(
      "--plugins",
      default="",
      metavar="MODULES",
      help="modules that the run was trained with, as config.plugins; they are imported",
    )

  def add_average(self):
    """Adds --raw-params, for tools that use weights as they are."""
    self.add_argument(
      "--raw-params",
      dest="average",
      action="store_false",
      help="if a run has a moving average of its parameters, use the parameters themselves",
    )

  def add_format(self, *choices: str):
    """Adds --format: how the result is printed; the first of the choices is the default."""
    self.add_argument(
      "--format", choices=choices, default=choices[0], help=f"default: {choices[0]}"
    )

  def add_settings(self):
    """Adds --config.KEY=VALUE to --help; `parse_with_settings` returns the given ones."""
    self.add_argument(
      "--config.KEY",
      metavar="VALUE",
      default=argparse.SUPPRESS,
      help="value of a setting, as for a run: --config.batch_size=64",
    )

  def parse_args(self, args: Sequence[str] | None = None, namespace=None):
    """As argparse, but the message about an unknown flag suggests similar ones."""
    self._load(args)
    flags, rest = self.parse_known_args(args, namespace)
    self._refuse(rest)
    return flags

  def parse_known_args(self, args: Sequence[str] | None = None, namespace=None):
    """As argparse; flags may be spelt with underscores."""
    if args is None:
      args = sys.argv[1:]
    return super().parse_known_args([self._spelt(word) for word in args], namespace)

  def parse_with_settings(self, args: Sequence[str] | None = None):
    """Parses flags and settings for runs: (flags, ["--config.KEY=VALUE", ...])."""
    self._load(args)
    flags, rest = self.parse_known_args(args)
    settings = [word for word in rest if word.startswith(SETTING) and "=" in word]
    self._refuse([word for word in rest if word not in settings])
    if getattr(flags, "plugins", ""):
      settings.append(f"{SETTING}plugins={flags.plugins}")
    return flags, settings

  def error(self, message: str):
    """Prints one sentence and ends the program."""
    words = message.removeprefix("argument ").rstrip(".")
    sentence = f"{words[0].upper()}{words[1:]}. See --help."
    console.leave(sentence, console.WRONG_USAGE, self._name)

  def _load(self, args: Sequence[str] | None):
    """Imports the plugins of a command line, or prints one sentence and ends the program.

    Before other flags are read: these may be paths on a storage that a plugin adds.
    """
    try:
      plugins.load(plugins_in(sys.argv[1:] if args is None else args))
    except ConfigError as error:
      console.leave(str(error), console.WRONG_USAGE, self._name)

  def _refuse(self, words):
    if not words:
      return
    flag = words[0].partition("=")[0]
    if flag.startswith("--"):
      near = similar(flag, [name for name in self._option_string_actions if name.startswith("--")])
      self.error(f"{words[0]!r} is not a flag; nearest: {near}")
    self.error(f"{words[0]!r} is not a flag; flags begin with --")

  def _spelt(self, word):
    """The word, with hyphens for underscores if that makes it a known flag."""
    flag, equals, value = word.partition("=")
    dashes = flag.replace("_", "-")
    known = self._option_string_actions
    if flag in known or dashes not in known:
      return word
    return dashes + equals + value


def source(text: str) -> str:
  """A path on any kind of storage, checked and returned as it was given; for `type=`."""
  anywhere(text)
  return text


def path(text: str) -> pathlib.Path:
  """A path of this machine; for `type=`."""
  return _checked(local_path, text)


def anywhere(text: str) -> Path:
  """A path on any kind of storage; for `type=`."""
  return _checked(path_of, text)


def _checked(read, text):
  """The path that `read` makes of the text; refuses an empty text, as of an unset variable."""
  if not text:
    raise argparse.ArgumentTypeError("the path is empty; name a file or folder, or leave it out.")
  try:
    return read(text)
  except ConfigError as error:
    raise argparse.ArgumentTypeError(str(error)) from error


def plugins_in(words: Iterable[str]) -> str:
  """The plugins of a command line, by the flag or else by the setting; the last of each counts."""
  flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
  flags.add_argument("--plugins", dest="flag", nargs="?", default="", const="")
  flags.add_argument(f"{SETTING}plugins", dest="setting", nargs="?", default="", const="")
  given, _ = flags.parse_known_args(list(words))
  return given.flag or given.setting


def whole(low: int, high: int) -> Callable[[str], int]:
  """Reads a whole number from `low` to `high`; for `type=`."""

  def read(text: str) -> int:
    try:
      number = int(text)
    except ValueError:
      number = None
    if number is None or not low <= number <= high:
      raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low:,} to {high:,}")
    return number

  return read


def image_size(text: str) -> Size:
  """Reads the size of images, such as 224 or 224x256; for `type=`."""
  try:
    size = read_size(text)
  except ValueError:
    size = None
  if size is None or not (min(sides(size)) >= 0 and max(sides(size)) <= MAX_SIDE):
    raise argparse.ArgumentTypeError(
      f"{text!r} is not a number of pixels from 0 to {MAX_SIDE:,}, nor two such as 224x256"
    )
  return size


@contextlib.contextmanager
def ending(tool: str) -> Iterator[None]:
  """Turns an error inside into one line on stderr and an exit status.

  Variables that `process.program` refuses are an error too. The status is 2 for a ConfigError
  (wrong usage), 75 for a run that a signal stopped, 130 for Ctrl-C, and 1 for any other error of
  the data, the disk or the machine.
  """
  try:
    program.check_variables()
    with program.said_of_devices():
      yield
  except ConfigError as error:
    console.leave(str(error), console.WRONG_USAGE, tool)
  except Stopped as error:
    console.leave(str(error), console.STOPPED, tool)
  except (MemoryError, OSError, RuntimeError, ValueError) as error:
    console.leave(machine.exhausted(error) or str(error), console.FAILED, tool)
  except KeyboardInterrupt:
    console.leave("Interrupted.", console.INTERRUPTED, tool)


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


def file(path: str | Path, setting: str) -> Path:
  """Checks a file to write, and makes its folder, if that does not exist.

  Args:
    path: the file.
    setting: flag that gave the path, such as --output, for the message.

  Raises:
    ConfigError: it is a folder; or as `folder`.
  """
  path = path_of(path)
  if files.is_folder(path):
    raise ConfigError(f"{setting} {path} is a folder; give the name of a file.")
  folder(path.parent, setting)
  return path
