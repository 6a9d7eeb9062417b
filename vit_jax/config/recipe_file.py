"""Runs Python files of users, recipes and studies, and replaces settings: --config.KEY=VALUE."""

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import os
import pathlib
import re
import runpy
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from vit_jax.config.data import Data
from vit_jax.config.fields import (
  AUTO,
  MAX_ITEMS,
  MAX_TEXT,
  Duration,
  Group,
  Size,
  group_in,
  in_pixels,
  is_auto,
  read_size,
  rule_of,
  scaled,
)
from vit_jax.config.model import Model, settings_of_name
from vit_jax.config.parsing import checked, class_of, from_dict, to_dict
from vit_jax.config.resolve import GIVEN, rules_of, traced, value_of
from vit_jax.config.run import Config
from vit_jax.config.suggestions import missing_recipe, unknown
from vit_jax.process.errors import ConfigError
from vit_jax.process.text import listed, one_line, shown
from vit_jax.registry import SOURCES
from vit_jax.storage import files

_PACKAGE = pathlib.Path(__file__).parents[1]
# The recipes of an installed package, or of a clone.
INSTALLED = _PACKAGE / "configs"
if not INSTALLED.is_dir():
  INSTALLED = _PACKAGE.parent / "configs"
_NAME = re.compile(r"\w+")
# What the names of data and weights stand for; another project may have a configs/train.py.
OF_DATA = ("train", "finetune", "evaluate")


def path_of_recipe(name: str, folder: str = "") -> str:
  """The file of a recipe, in the current folder or else in the installed package.

  Args:
    name: a path, or the name of a recipe of this project; those `OF_DATA` are the installed ones.
    folder: below configs/.
  """
  if name in OF_DATA and not folder:
    return str(INSTALLED / f"{name}.py")
  return here_or_installed(in_configs(name, folder))


def in_configs(name: str, folder: str = "") -> str:
  """NAME.py in configs/ if `name` is a NAME alone; `name` itself if it is a path."""
  if not _NAME.fullmatch(name) or os.path.isfile(name):
    return name
  return str(pathlib.Path("configs", folder, f"{name}.py"))


def here_or_installed(path: str) -> str:
  """The path of a file in configs/: `path` itself, or the installed file if only that exists."""
  first, *below = pathlib.Path(path or ".").parts or [""]
  installed = INSTALLED.joinpath(*below)
  if first != "configs" or os.path.exists(path) or not installed.exists():
    return path
  return str(installed)


def is_installed(path: str) -> bool:
  """Whether a path in configs/ means the installed file, not another one of the current folder."""
  found = here_or_installed(path)
  return not os.path.exists(found) or INSTALLED.samefile(os.path.dirname(found))


def without_slash(word: str) -> str:
  """A word without slashes at its end, so that a folder has one name, and its run one workdir."""
  return word.rstrip("/") or word


def recipe_of(word: str) -> str:
  """The recipe that `vit-jax train WORD` trains: WORD itself, or configs/train.py on that data.

  A folder is data, even if a recipe has its name. A name that is almost a recipe's, and nothing
  else, is that recipe misspelt, as `load` will say.
  """
  word = without_slash(word)
  name = word.partition(":")[0]
  named = in_configs(name) != name and os.path.isfile(path_of_recipe(name))
  if (named or name.endswith(".py") or _is_misspelt(name)) and not os.path.isdir(word):
    return word
  return f"train:{word}"


def _is_misspelt(name: str) -> bool:
  """Whether a name is almost that of a recipe of this project."""
  if not _NAME.fullmatch(name) or name in SOURCES or os.path.exists(name):
    return False
  recipes = [path.stem for path in INSTALLED.glob("*.py")]
  return bool(difflib.get_close_matches(name, recipes, cutoff=0.8))


def run(path: str) -> dict[str, Any]:
  """The names that a file defines.

  Raises:
    ConfigError: it is no file, or cannot be run.
  """
  with blaming(path):
    files.open_file(path).close()  # running a FIFO would wait
    return runpy.run_path(path)


def load(recipe: str, texts: Mapping[str, str] | None = None) -> Config:
  """The config of a recipe, given as NAME, configs/NAME.py, NAME:ARG or configs/NAME.py:ARG.

  Args:
    recipe: its path and argument.
    texts: the settings of the command line, as for `recipe_file.replaced`.

  Raises:
    ConfigError: there is no such recipe, it fails with this argument, or a setting is wrong.
  """
  name, _, argument = recipe.partition(":")
  path = path_of_recipe(name)
  if not os.path.exists(path):
    raise ConfigError(missing_recipe(name, INSTALLED))
  replace = functools.partial(replaced, texts=texts or {})
  return replace(checked(settings_of(path, argument, replace)))


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
  Also SystemExit: a file that ends the program must not look like success. Ctrl-C is no error of
  the file.

  Raises:
    ConfigError: the code raised anything; its own ConfigErrors are left as they are.
  """
  try:
    yield
  except (ConfigError, KeyboardInterrupt):
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


PREFIX = "config."
UNITS = {field.name for field in dataclasses.fields(Duration)}
# Sides of images before the square is cut out, which keep their proportion to it.
UNCUT = ("evaluate_resize", "train_resize")
TRUTH = dict.fromkeys(("true", "True", "1"), True) | dict.fromkeys(("false", "False", "0"), False)


def split_settings(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
  """Splits a command line into ({setting: its text}, the other words).

  If a setting is repeated, its last value counts. A setting that is the last word, or comes before
  a flag, has no value: it is switched on.
  """
  settings = {}
  others = []
  words = list(words)
  while words:
    word = words.pop(0)
    flag, equals, value = word.partition("=")
    key = flag.removeprefix("-").removeprefix("-")
    setting = key.removeprefix(PREFIX)
    if key == flag or not key.startswith(PREFIX):
      others.append(word)
    elif equals:
      settings[setting] = value
    elif not words or words[0].startswith("--"):
      settings[setting] = "true"
    else:
      settings[setting] = words.pop(0)
  return settings, others


def in_our_names(texts: Mapping[str, str]) -> dict[str, str]:
  """The texts, with another library's name of a model replaced by the settings that it stands for.

  Settings on the command line itself take precedence.
  """
  implied = settings_of_name(texts.get("model.name", ""))
  given = {key: text for key, text in texts.items() if key != "model.name" or not implied}
  return {key: str(value) for key, value in implied.items()} | given


def replaced(config: Config, texts: Mapping[str, str]) -> Config:
  """The settings with those of the command line in place of a recipe's.

  The unit of a duration replaces another unit of the recipe; 0 of any unit means none. A `kind`
  brings its own defaults; what the recipe gives and both kinds have stays. Another optimizer does
  not get the recipe's learning rate, unless both are rated as Adam is. A name that the recipe does
  not have is added, if a source is given for it. A model may have the name of another library: then
  config.origins tells what it stands for. The sides `UNCUT` follow the image size, so that the part
  of an image that is seen stays the same.

  Args:
    config: the recipe's settings.
    texts: the values by key, such as {"model.depth": "6"}.

  Raises:
    ConfigError: names the setting, its value and what to do.
  """
  values = to_dict(config)
  ours = in_our_names(texts)
  for key in sorted(ours, key=lambda key: key.rpartition(".")[2] != "kind"):  # kinds first
    _replace(values, key, ours)
  if followed := _follow_the_size(values["data"], config.data, ours):
    told = dict(config.origins) | dict.fromkeys(followed, "in proportion to data.image_size")
    values["origins"] = tuple(told.items())
  made = from_dict(values)
  alike = made.optimizer.rated_as_adam and config.optimizer.rated_as_adam
  alike = alike or made.optimizer.kind == config.optimizer.kind
  if not alike and "schedule.learning_rate" not in ours:
    schedule = dataclasses.replace(made.schedule, learning_rate=AUTO)
    made = dataclasses.replace(made, schedule=schedule)
  return _with_origins(made, values, texts, config)


def _follow_the_size(values: dict[str, Any], before: Data, texts: Mapping[str, str]) -> list[str]:
  """Scales the sides `UNCUT` that `texts` do not give to the new image size; returns their keys.

  Raises:
    ConfigError: the new size is left to its rule, so that they cannot follow.
  """
  size = values["image_size"]
  if before.image_size == AUTO or size == before.image_size:
    return []
  given = [key for key in UNCUT if getattr(before, key) not in (0, AUTO)]
  followed = [key for key in given if f"data.{key}" not in texts]
  for key in followed:
    value = getattr(before, key)
    if size == AUTO:
      raise ConfigError(
        f"config.data.image_size={AUTO} is not known here, and config.data.{key}="
        f"{in_pixels(value, 'x')} of the recipe is for {in_pixels(before.image_size)} pixels; give "
        f"config.data.{key} too (0: not used)."
      )
    values[key] = scaled(value, size, before.image_size)
  return [f"data.{key}" for key in followed]


def as_elsewhere(config: Config, name: str) -> Config:
  """The settings with the architecture that another library calls so; the same for our names."""
  if not settings_of_name(name):
    return config
  return replaced(config, {"model.name": name})


def _with_origins(
  config: Config, values: Mapping, texts: Mapping[str, str], before: Config
) -> Config:
  """The settings, with the origins of those that the command line gives, and of a model's name.

  Settings that `values` lacks, because another `kind` does not have them, lose their origin. Those
  that were AUTO `before` and are given now get one.
  """

  def named(key: str) -> bool:
    return any(f"{name}.".startswith(f"{key}.") for name in texts)

  origins = {key: words for key, words in config.origins if _has(values, key)}
  origins |= {key: GIVEN for key in origins if named(key)}
  rules = rules_of(before)
  given = [key for key in rules if named(key) and is_auto(value_of(before, key))]
  origins |= {key: GIVEN for key in given if not is_auto(value_of(config, key))}
  if implied := settings_of_name(texts.get("model.name", "")):
    told = _told_by(texts["model.name"], config)
    origins = {key: origins[key] for key in origins if key in texts or key not in implied} | told
  derived = [key for key in config.derived if not named(key) and _has(values, key)]
  return traced(config, origins, derived)


def _told_by(name: str, config: Config) -> dict[str, str]:
  """The origins of the settings that another library's name stands for, as in config.origins.

  Settings of the architecture that our own name tells anyway are left out.

  Args:
    name: the other library's.
    config: the settings with those of the name.
  """
  usual = Model()
  weights = "" if config.init_from else ", without its weights"
  told = {"model.name": f"the architecture of {name}{weights}"}
  for key, value in settings_of_name(name).items():
    group, _, field = key.partition(".")
    if getattr(getattr(config, group), field) == value != getattr(usual, field, None):
      told.setdefault(key, name)
  return told


def _has(values, key: str) -> bool:
  """Whether nested mappings have a key such as "model.depth"."""
  first, _, rest = key.partition(".")
  return first in values and (not rest or _has(values[first], rest))


def _replace(values: dict[str, Any], key: str, texts: Mapping[str, str]):
  place = _locate(values, key, texts)
  name = place.field.name
  node = place.node
  if name == "kind" and place.group.default:
    _leave_kind(place, texts[key])
  if place.settings is Duration and texts[key] == AUTO:
    whole = f"{place.path}={AUTO}"
    raise ConfigError(f"{place.path}.{name}={AUTO} is one unit of a length; give {whole}.")
  value = _read(texts[key], place.field, f"{place.path}.{name}")
  if place.field.type is Duration:
    value = dict.fromkeys(UNITS, value)
  node[name] = value
  if place.settings is Duration:
    parent = key.rpartition(".")[0]
    node.update({unit: 0 for unit in UNITS if f"{parent}.{unit}" not in texts})


def _leave_kind(place: "_Place", kind: str):
  """Deletes the values of a group that are not of another kind, or are defaults of its own one.

  What the recipe gives and both kinds have stays.
  """
  known = _fields(class_of(place.group, {"kind": kind}, place.path))
  usual = {}
  if kind != place.node.get("kind", place.group.default):
    usual = to_dict(place.settings())
  for other, value in [*place.node.items()]:
    by_rule = other in known and rule_of(known[other])
    default = other in usual and value == usual[other]
    if other not in known or default or (value == AUTO and not by_rule):
      del place.node[other]


class _Place(NamedTuple):
  """The place of a setting: its field in a group, and the values of that group."""

  node: dict[str, Any]
  group: Group
  settings: type
  field: dataclasses.Field
  path: str


def _locate(values: dict[str, Any], key: str, texts: Mapping[str, str]) -> _Place:
  """Finds the setting `key`; adds the groups on the way that a new name needs."""
  group = Group({"": Config})
  node = values
  path = "config"
  names = key.split(".")
  while names:
    settings = class_of(group, node, path)
    fields = _fields(settings)
    if names[0] not in fields:
      raise ConfigError(unknown(path, names[0], fields, group))
    field = fields[names[0]]
    inner = group_in(field)
    left_to_rule = not names[1:] and rule_of(field)  # as a whole duration may be
    whole = inner is None or inner.listed or left_to_rule  # one value of the command line sets it
    if whole and names[1:]:
      raise ConfigError(unknown(f"{path}.{names[0]}", names[1], {}))
    if whole:
      return _Place(node, group, settings, field, path)
    group = inner
    depth = 2 if inner.by_name else 1
    for name in names[:depth]:
      if name not in node and path != "config" and group.by_name:
        _check_name(f"{path}.{name}", node, texts)
      path = f"{path}.{name}"
      node = node.setdefault(name, {})
    names = names[depth:]
  what = "its kind" if group.default else "one of its settings"
  raise ConfigError(f"{path} is a group of settings; give {what}.")


def _check_name(path: str, known: Mapping[str, Any], texts: Mapping[str, str]):
  """Refuses a name that the recipe lacks and no source is given for; it may be misspelt."""
  below = path.removeprefix(PREFIX)
  if not any(key.startswith(f"{below}.") and key.endswith("source") for key in texts):
    raise ConfigError(
      f"{path} is not in the recipe, which has {listed(sorted(known)) or 'none'} there; to add it, "
      "give its source too."
    )


def _fields(settings: type) -> dict[str, dataclasses.Field]:
  return {field.name: field for field in dataclasses.fields(settings)}


def _read(text: str, field: dataclasses.Field, path: str) -> Any:
  """The value of a setting in the type of its field."""
  most = MAX_TEXT
  if field.type is tuple:
    most = MAX_ITEMS * MAX_ITEM_TEXT
  if len(text) > most:
    raise ConfigError(f"{path} has a length of {len(text):,} characters; the most is {most:,}.")
  if text == AUTO and rule_of(field):
    return AUTO
  try:
    return READERS[field.type](text)
  except (KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
    if field.type is Duration:
      raise ConfigError(
        f"{path}={shown(text)} has no unit; give {path}.steps, .epochs or .examples, or {AUTO}."
      ) from error
    group = group_in(field)
    like = group.example() if group else _example(field)
    raise ConfigError(
      f"{path}={shown(text)} cannot be read as {_type_in_words(field.type)}; try {like}."
    ) from error


def _type_in_words(kind) -> str:
  """The type of a setting, for messages."""
  if kind is Size:
    return "a size"
  return kind.__name__


def _example(field: dataclasses.Field) -> str:
  """An example of a setting's value, for messages."""
  if field.default != AUTO:
    either = f", or {AUTO}" if rule_of(field) else ""
    return f"{field.default!r}{either}"
  usual = field.metadata["usual"]
  if usual is None:
    usual = EXAMPLES.get(field.type)
  if usual is None:
    return AUTO
  return f"{usual!r}, or {AUTO}"


def _tuple(text: str) -> tuple:
  value = ast.literal_eval(text)
  if isinstance(value, (list, tuple)):
    return tuple(value)
  return (value,)


# For settings whose default is AUTO.
EXAMPLES = {bool: True, int: 1, float: 0.1, tuple: (0.5, 1.0), Size: 224}
MAX_ITEM_TEXT = 32  # characters, on average: a number, or a short name, and what divides them
READERS = {
  bool: TRUTH.__getitem__,
  int: int,
  float: float,
  str: str,
  tuple: _tuple,
  Size: read_size,
}
