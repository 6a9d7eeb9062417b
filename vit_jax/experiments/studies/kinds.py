"""Checks the types of what the file of a study gives, before anything uses it."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any

from vit_jax.config import ConfigError
from vit_jax.process.text import shown

WORDS = {
  str: "text",
  bool: "True or False",
  int: "a whole number",
  tuple: "a tuple",
  Mapping: "a dict with text as keys",
  type(None): "None",
}


def check(part, name: str):
  """Checks the fields of a part of a study and of the parts in it; messages begin with `name`.

  Raises:
    ConfigError: names the field, its value and what it must be.
  """
  for field, kind in typing.get_type_hints(type(part)).items():
    check_value(getattr(part, field), kind, f"{name}: {type(part).__name__}({field}=...)")


def check_value(value, kind, place: str):
  """Checks a value, and what it holds, against an annotation of `study.py`.

  Raises:
    ConfigError: begins with `place`, such as "mine.py: Cell(label=...)".
  """
  kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
  fitting = [one for one in kinds if fits(value, one)]
  if not fitting:
    known = " or ".join(WORDS.get(plain(one)) or f"a {plain(one).__name__}" for one in kinds)
    raise ConfigError(f"{place} is or holds {shown(value)}, where {known} must be.")
  if dataclasses.is_dataclass(value):
    check(value, place.partition(": ")[0])
  elif plain(fitting[0]) is tuple:
    for one in value:
      check_value(one, typing.get_args(fitting[0])[0], place)


def plain(kind) -> type:
  """The class of an annotation: tuple of `tuple[str, ...]`."""
  return typing.get_origin(kind) or kind


def fits(value, kind) -> bool:
  """Whether a value is of an annotation's class; a list does as well as a tuple."""
  if plain(kind) is Mapping:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
  return isinstance(value, (tuple, list) if plain(kind) is tuple else plain(kind))


def check_settings(settings: Mapping[str, Any], name: str):
  """Checks that settings can be written into the results.

  Raises:
    ConfigError: names the setting.
  """
  for key, value in settings.items():
    try:
      json.dumps(value)
    except (TypeError, ValueError) as error:
      raise ConfigError(
        f"{name} sets {key} to {shown(value)}, which is of the type {type(value).__name__}; make "
        "it a number, text, True, False or a tuple of these, such as int(...) or str(...)."
      ) from error
