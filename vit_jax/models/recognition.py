"""Finds the model of a parameter tree from the names and shapes of its parameters.

Also describes a module, and the differences between two modules, in words.
"""

import dataclasses
import math
import re

from vit_jax import config, registry
from vit_jax.config.fields import AUTO
from vit_jax.config.model import (
  ARCHITECTURE,
  CONFIG_ONLY_FIELDS,
  FIXED_POSITIONS,
  OUTSIDE,
  USUAL,
  Model,
)
from vit_jax.models import naming
from vit_jax.models.family import Family, Network


def differences(there: Network, here: Network) -> list[str]:
  """Describes each difference between two modules; [] if they differ at most in their heads."""
  kinds = type(there).__name__, type(here).__name__
  if kinds[0] != kinds[1]:
    return ["they are a {} there and a {} here".format(*kinds)]
  return [
    f"{key} is {value} there and {getattr(here, key)} here"
    for key, value in architecture(there).items()
    if value != getattr(here, key)
  ]


def architecture(module: Network) -> dict:
  """The module's fields that belong to its architecture."""
  names = (field.name for field in dataclasses.fields(module))
  return {name: getattr(module, name) for name in names if name not in OUTSIDE}


def settings_of(module: Network) -> config.Model:
  """config.model of a module: all fields of its architecture, and the nearest name.

  Settings outside the architecture, such as type, dropout and classes, keep their defaults. The
  name is AUTO if the family has none for such a module.
  """
  return config.Model(name=_nearest(module)[0], **USUAL | naming.fields_of_module(module))


def in_words(module: Network) -> str:
  """A module's nearest name and its other fields, "ViT-L/16 depth=8"; its class if without name."""
  name, others = _nearest(module)
  if name == config.AUTO:
    return type(module).__name__
  return " ".join([name, *(f"{key}={x}" for key, x in others.items())])


def _nearest(module: Network) -> tuple[str, dict]:
  """The name that is nearest to a module, and the fields that differ from it; AUTO: no name."""
  here = architecture(module)
  candidates = []
  for name in registry.FAMILIES[naming.family_of(module)].alike(module):
    named = naming.create(name)
    others = {key: x for key, x in here.items() if x != getattr(named, key)}
    candidates.append((len(others), name not in naming.names(), name, others))
  if not candidates:
    return config.AUTO, {}
  # The fewest differing fields; of several names, one that `naming.names` lists.
  _, _, name, others = min(candidates, key=lambda candidate: candidate[:2])
  return name, others


UNKNOWN = Model()
# Errors from reading a tree with another layout.
_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)


class UnlikeError(ValueError):
  """The parameters are unlike those of known models; the message says why."""


class OneOf(tuple):
  """The values of a field that parameters allow, the likeliest first."""

  def __new__(cls, *values):
    """The values in this order."""
    return super().__new__(cls, values)


def module_of(params: dict, known: Model = UNKNOWN) -> Network:
  """The module of parameters, unrolled, in float32.

  Args:
    params: parameter tree of this project, with unstacked blocks; the head may be missing.
    known: what is known of the architecture. If its family is given, it is complete, and the module
      has these fields. Otherwise the fields are recognised from the parameters, and only those that
      parameters do not show are taken from `known` (`config.model.CONFIG_ONLY_FIELDS`); without
      position parameters, the positions are "none" or a kind without parameters.

  Raises:
    ValueError: the names or shapes belong to no model of this project, or to another one than is
      known.
  """
  names = [known.family]
  if known.family == AUTO:
    names = [*registry.FAMILIES]
  try:
    for name in reversed(names):  # variants come after the family that they vary
      family = registry.FAMILIES[name]
      found = family.recognise(params)
      if found is not None:
        return _module(family, known, found)
  except _ERRORS as error:
    raise _not_known(params, error) from error
  raise _not_known(params, UnlikeError(f"no model of {' or '.join(names)} has such names"))


def _module(family: Family, known: Model, found: dict) -> Network:
  """The module with the fields `found` in its parameters, and those that `known` adds.

  Raises:
    UnlikeError: the two contradict each other.
  """
  found = {key: _chosen(x, getattr(known, key, AUTO)) for key, x in found.items()}
  if known.family == AUTO:
    given = _unseen(known)
  else:
    given = _agreeing(known, found)
  fields = {field.name for field in dataclasses.fields(family.module)}
  return family.module(**{key: x for key, x in given.items() if key in fields} | found)


def _chosen(found, known):
  """The value of a field: of several that parameters allow, the known one if it is among them."""
  if not isinstance(found, OneOf):
    return found
  return known if known in found else found[0]


def _unseen(known: Model) -> dict:
  """The known fields that parameters do not show."""
  values = {key: getattr(known, key) for key in CONFIG_ONLY_FIELDS}
  given = {key: x for key, x in values.items() if x != AUTO}
  if given.get("positions") not in FIXED_POSITIONS:
    given["positions"] = "none"
  return given


def _agreeing(known: Model, found: dict) -> dict:
  """All known fields of an architecture, after a check against those `found` in its parameters.

  Raises:
    UnlikeError: a field differs.
  """
  values = {key: getattr(known, key) for key in ARCHITECTURE if key != "family"}
  given = {key: x for key, x in values.items() if x != AUTO}  # older cards lack later fields
  for key, x in given.items():
    if key in found and found[key] != x:
      raise UnlikeError(f"{key} is {found[key]} in them, and {x} in what describes them")
  return given


def child_count(tree: dict, prefix: str, *, first: int = 0) -> int:
  """The number of children called `prefix` and a number; the numbers begin with `first`.

  Raises:
    UnlikeError: the numbers have gaps.
  """
  names = (re.fullmatch(rf"{prefix}(\d+)", name) for name in tree)
  numbers = sorted(int(match[1]) for match in names if match)
  if numbers != list(range(first, first + len(numbers))):
    raise UnlikeError(f"{prefix}* numbered {numbers}, with gaps")
  return len(numbers)


def outputs(params: dict) -> int:
  """Outputs of the head; 1 without a head."""
  if "head" not in params:
    return 1
  return params["head"]["kernel"].shape[-1]


def patch_grid(
  params: dict, before: int, likely: tuple[int, int] | None = None
) -> tuple[int, int] | None:
  """Rows and columns of patches of the position embeddings; None if there are no embeddings.

  A table with one vector per token does not determine the rows: the grid is the likely one if that
  has as many patches, and a square otherwise; None if there is no such square. The first `before`
  vectors are for the tokens before the patches.

  Raises:
    ValueError: the embeddings have another layout.
  """
  tables = position_tables(params)
  if not tables:
    return None
  table = tables[0]
  try:
    if "pos_embedding_row" in table:
      return len(table["pos_embedding_row"]), len(table["pos_embedding_column"])
    patches = table["pos_embedding"].shape[1] - before
  except _ERRORS as error:
    raise _not_known(params, error) from error
  if likely and math.prod(likely) == patches:
    return likely
  side = round(max(patches, 0) ** 0.5)
  if side * side != patches:
    return None
  return side, side


def position_tables(params: dict) -> list[dict]:
  """All subtrees with 1-D or 2-D position embeddings."""
  tables = []
  for name, node in params.items():
    if name in ("posembed_input", "posembed_shared"):
      tables.append(node)
    elif isinstance(node, dict):
      tables += position_tables(node)
  return tables


def _not_known(params: dict, error: Exception) -> ValueError:
  """The error for parameters of another layout; `error` is what reading them as ours raised."""
  wrong = "an array is where several belong, or has another number of axes"
  if isinstance(error, KeyError):
    wrong = f"looked for: {error}"
  elif isinstance(error, UnlikeError):
    wrong = str(error)
  return ValueError(
    f"These parameters do not belong to a known model ({wrong}); they hold "
    f"{', '.join(list(params)[:5])}, ..."
  )
