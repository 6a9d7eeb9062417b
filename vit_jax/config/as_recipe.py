"""Settings as a recipe: a Python file that one can keep, edit and run."""

import collections
import dataclasses
import functools
import inspect
import json
from collections.abc import Iterator, Mapping

from vit_jax import config as exported
from vit_jax.config.fields import OF_DEVICES
from vit_jax.config.resolve import (
  Facts,
  derived,
  left_to_rule,
  of_facts,
  resolve,
  traced,
  value_of,
  with_value,
)
from vit_jax.config.run import Config
from vit_jax.process.text import printable

_FRAME = '''"""{title}"""

{imports}


def get_config():
  """The recipe."""
  return to_config_dict(
    {call}
  )
'''


def as_recipe(config: Config, facts: Facts, title: str) -> str:
  """The text of a recipe with these settings; those at their defaults are left out.

  The origin of a setting, if `config.origins` tells it, is written as a comment. A setting without
  an origin stays AUTO if it follows from the written ones; so does one that depends on the devices.

  Args:
    config: the settings, as `resolve` gives them with these facts.
    facts: what is known.
    title: first line of the file's docstring.
  """
  origins = dict(config.origins)
  of_devices = of_facts(config, OF_DEVICES)
  silent = [key for key in derived(config) if key not in of_devices and not origins.get(key)]
  plain = with_value(traced(config, {}, ()), "plugins", "")  # only a command line names them
  for key in derived(config):
    if key in silent or key in of_devices:
      plain = left_to_rule(plain, key)
  while wrong := _differing(resolve(plain, facts), config, silent):
    for key in wrong:
      plain = with_value(plain, key, value_of(config, key))
  call = "\n".join(_lines(plain, origins, "", "    ")).strip()
  imports = _imports(_classes(plain))
  title = json.dumps(printable(title), ensure_ascii=False)[1:-1]  # a name may hold quotes
  return _FRAME.format(title=title, imports=imports, call=call)


def _differing(one: Config, other: Config, keys: list[str]) -> list[str]:
  """The keys of the settings that differ."""
  return [key for key in keys if value_of(one, key) != value_of(other, key)]


def _lines(value, origins: Mapping[str, str], path: str, indent: str) -> Iterator[str]:
  """The lines of the expression for a setting, or for a group of them, called `path`."""
  if isinstance(value, Mapping):
    arguments = [(f"{_quoted(key)}: ", key) for key in value]
    begin, end = "{", "}"
    item = value.get
  elif _is_list(value):
    arguments = [("", place) for place in range(len(value))]
    begin, end = "[", "]"
    item = value.__getitem__
  elif dataclasses.is_dataclass(value):
    arguments = [(f"{key}=", key) for key in _given(value)]
    begin, end = f"{type(value).__name__}(", ")"
    item = functools.partial(getattr, value)
  else:
    text = _quoted(value) if isinstance(value, str) else repr(value)
    yield indent + text
    return
  inside = []
  for prefix, key in arguments:
    below = f"{path}.{key}".removeprefix(".")
    if origins.get(below):
      inside.append(f"{indent}  # From: {printable(origins[below])}")
    first, *others = _lines(item(key), origins, below, f"{indent}  ")
    *before, last = [f"{indent}  {prefix}{first.strip()}", *others]
    inside += [*before, f"{last},"]
  short = f"{indent}{begin}{' '.join(line.strip() for line in inside).rstrip(',')}{end}"
  if len(inside) < 4 and len(short) < 80 and "#" not in short:
    yield short
    return
  yield indent + begin
  yield from inside
  yield indent + end


def _quoted(text: str) -> str:
  """A text as Python in double quotes, with escapes for what cannot be printed."""
  return printable(json.dumps(text, ensure_ascii=False))  # its escapes are Python's too


def _is_list(value) -> bool:
  """Whether the value is a list of groups."""
  return isinstance(value, tuple) and any(map(dataclasses.is_dataclass, value))


def _given(group) -> Iterator[str]:
  """The fields of a group that are not at the default of its class."""
  usual = type(group)()
  for field in dataclasses.fields(group):
    if field.init and getattr(group, field.name) != getattr(usual, field.name):
      yield field.name


def _classes(value) -> Iterator[type]:
  """The classes that a recipe names: of a group and of the groups inside it."""
  if isinstance(value, Mapping):
    for item in value.values():
      yield from _classes(item)
  elif _is_list(value):
    for item in value:
      yield from _classes(item)
  elif dataclasses.is_dataclass(value):
    yield type(value)
    for field in _given(value):
      yield from _classes(getattr(value, field))


def _imports(classes) -> str:
  """The lines that import these classes and `to_config_dict`."""
  names = collections.defaultdict(set, {exported.__name__: {"to_config_dict"}})
  for kind in classes:
    public = getattr(exported, kind.__name__, None) is kind
    module = exported if public else inspect.getmodule(kind)
    names[module.__name__].add(kind.__name__)
  return "\n".join(
    f"from {module} import {', '.join(sorted(of))}" for module, of in sorted(names.items())
  )
