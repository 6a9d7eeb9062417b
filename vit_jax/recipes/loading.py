"""Recipes by the names used on the command line, configs/NAME.py[:ARG], and what ARG may say."""

import contextlib
import re
from collections.abc import Iterable, Iterator

from vit_jax.config import Config, ConfigError, Model, recipe_file
from vit_jax.config.recipe_file import load
from vit_jax.storage import files
from vit_jax.storage.paths import path_of

__all__ = [
  "choice",
  "columns_named",
  "data_and_model",
  "keys_of",
  "largest_side",
  "load",
  "module_of",
  "options",
  "resolve",
  "weights_and_data",
]


def choice(argument: str, *known: int | str) -> int | str:
  """The value of `known` that ARG names in --config=configs/NAME.py:ARG.

  Raises:
    ConfigError: the argument names none of them.
  """
  named = {str(value): value for value in known}
  if argument not in named:
    raise ConfigError(f"The recipe's argument {argument!r} is none of {', '.join(named)}.")
  return named[argument]


def options(words: Iterable[str], *known: str) -> frozenset[str]:
  """The words after the fixed fields of a recipe's argument, in any order.

  Raises:
    ConfigError: one is not known, or is given twice.
  """
  words = list(words)
  chosen = frozenset(choice(word, *known) for word in words)
  if len(chosen) < len(words):
    raise ConfigError(f"The recipe's words {', '.join(words)} hold one twice; give each once.")
  return chosen


def resolve(recipe: str, words: Iterable[str]) -> Config:
  """The config of a run, built as the main job builds it from its command line.

  Args:
    recipe: configs/NAME.py or configs/NAME.py:ARG.
    words: "--config.KEY=VALUE", ...

  Raises:
    ConfigError: there is no such recipe, or a setting is wrong.
  """
  texts, _ = recipe_file.split_settings(words)
  return load(recipe, texts)


def module_of(model: str):
  """The Flax module of one of our names, with one class.

  Raises:
    ConfigError: there is no such model.
  """
  from vit_jax import models  # imports JAX, which reading recipes by their names does not need

  try:
    return models.configured(Model(name=model, num_classes=1))
  except ValueError as error:
    raise ConfigError(f"The recipe's model cannot be used: {error}") from error


def largest_side(model: str, most: int) -> int:
  """The largest side of square images, up to `most` pixels, that the model's patches tile.

  Raises:
    ConfigError: there is no such model, or its patches are larger.
  """
  from vit_jax.models import family

  return family.largest_side(module_of(model), most, model)


def keys_of(argument: str) -> tuple[str, dict[str, str]]:
  """The rest of a recipe's argument, and the columns of "...,image_key=NAME,label_key=NAME"."""
  rest, *words = re.split(",(image_key|label_key)=", argument)
  return rest, dict(zip(words[::2], words[1::2], strict=True))


@contextlib.contextmanager
def columns_named(where: str = "") -> Iterator[None]:
  """Around opening data that `keys_of` read: errors of columns say how to name them.

  Args:
    where: what the data stands in, such as "In a recipe's argument, ".

  Raises:
    ColumnError: says it too.
  """
  from vit_jax.data import (
    sources,  # imports JAX, which reading recipes by their names does not need
  )

  try:
    yield
  except sources.ColumnError as error:
    raise sources.ColumnError(
      f"{error} {where}DATA,label_key=NAME and DATA,image_key=NAME name them."
    ) from error


def data_and_model(argument: str) -> tuple[str, str]:
  """DATA and MODEL of "DATA[,MODEL]"; a path may have commas."""
  from vit_jax.data import sources

  path = argument.partition(":")[2] if sources.is_named(argument) else argument
  if path and _exists(path):
    return argument, ""
  cuts = _cuts(argument)
  if not cuts:
    return argument, ""
  return cuts[-1]


def weights_and_data(argument: str, *, named: bool) -> tuple[str, str] | None:
  """WEIGHTS and DATA of "WEIGHTS,DATA", whose paths may have commas; None: it means no such thing.

  Args:
    argument: of the recipe.
    named: whether it may be names that the recipe knows. Then both paths must exist; else, one of
      them, so that opening the other one says what is wrong.
  """
  cuts = _cuts(argument)
  of_data = [cut for cut in cuts if _are_there(cut[1])]
  both = [cut for cut in of_data if _exists(cut[0])]
  if named or both:
    return next(iter(both), None)
  of_weights = (cut for cut in cuts if _exists(cut[0]))
  return next(iter(of_data), None) or next(of_weights, None)


def _cuts(argument: str) -> list[tuple[str, str]]:
  """The text before and after each comma that is not inside braces."""
  commas = re.finditer(r",(?![^{}]*\})", argument)
  return [(argument[: comma.start()], argument[comma.end() :]) for comma in commas]


def _are_there(spec: str) -> bool:
  """Whether a text is a data source, perhaps with a wrong prefix, or a path that exists."""
  from vit_jax.data import sources

  prefixed = sources.is_prefixed(spec) or sources.is_named(sources.recognised(spec))
  return bool(spec) and (prefixed or _exists(spec))


def _exists(path: str) -> bool:
  """Whether the path exists; False if it begins with a prefix that no storage has."""
  from vit_jax.data import sources

  return not sources.is_prefixed(path) and files.exists(path_of(path))
