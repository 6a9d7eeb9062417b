"""Makes modules from the paper's names ("ViT-L/16", "R152x2", "R50x1+ViT-B/16")."""

import contextlib
import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping

import jax.numpy as jnp

from vit_jax import config, registry
from vit_jax.config import parsing, suggestions
from vit_jax.config.model import ARCHITECTURE, USUAL, Model, translated
from vit_jax.models.family import Family, Network
from vit_jax.process.text import shown

NO_FIELDS = {"name", "family", "compute_dtype"}  # settings that are not fields of modules


def names() -> tuple[str, ...]:
  """The models that the paper and the published weights name."""
  return tuple(name for family in registry.FAMILIES.values() for name in family.names)


def create(name: str, **options) -> Network:
  """The Flax module called `name`.

  Args:
    name: one of `names()`, or a variant: any patch size ("ViT-B/20"), any width factor below 100
      ("R101x2"), any of the known ResNets under any of the known Transformers, with larger patches
      on the map ("R50x1+ViT-B/16p2": 2 x 2 positions of the /16 ResNet's map, 32 pixels). Also what
      timm or Transformers call such an architecture ("vit_small_patch16_224").
    **options: fields of the module, such as `vit_jax.models.vit.ViT` or
      `vit_jax.models.resnet.ResNet`, which replace the fields that the name implies. Their values
      are those of the settings config.model.KEY (docs/settings.md).

  Returns:
    A module for which `model.apply({"params": params}, images, train=False)` gives
    (logits, features); images are (B, H, W, 3) floats in [-1, 1].

  Raises:
    ValueError: there is no such model, it lacks an option, an option has a wrong value, or options
      contradict each other.
  """
  meaning = translated(name)
  if meaning and meaning.same:
    name = meaning.name
    options = meaning.options | options
  family, fields = described(name)
  known = _options(family)
  for key in options:
    if key not in known:
      raise ValueError(f"{key} is no option of {name}, which has {', '.join(sorted(known))}.")
  module = family.module(**(fields | _checked(options, family)))
  module.check(name)
  return module


def _checked(options: Mapping[str, object], family: Family) -> dict[str, object]:
  """The options, in the types of the settings that they are; others are left as they are.

  Raises:
    ConfigError: one has another type, is no choice, or is out of bounds.
  """
  usual = {field.name: field.default for field in dataclasses.fields(family.module)}
  checked = dict(options)
  for field in dataclasses.fields(Model):
    if field.name not in options:
      continue
    value = parsing.plain(options[field.name])
    if not (value == config.AUTO == usual[field.name]):
      value = parsing.value_of(field, value, field.name)
    checked[field.name] = value
  return checked


def configured(settings: config.Model) -> Network:
  """The module that config.model describes; the name decides the settings that are AUTO.

  If config.model.compute_dtype is AUTO, the module computes in bfloat16.

  Raises:
    ValueError: there is no such model, a setting asks for an option that it lacks, or settings
      contradict each other; the message begins with the wrong setting.
    ConfigError: the name or the number of classes is AUTO.
  """
  for key in ("name", "num_classes"):
    if getattr(settings, key) == config.AUTO:
      raise config.ConfigError(
        f"config.model.{key}={config.AUTO} follows from data or weights, which are not known here; "
        "give it."
      )
  values = vars(expanded(settings))
  kind = registry.FAMILIES[values["family"]].module
  known = {field.name for field in dataclasses.fields(kind)} - NO_FIELDS
  others = {key: x for key, x in values.items() if key not in known | NO_FIELDS}
  _check_usual(others, settings.name)
  given = {key: values[key] for key in values.keys() & known}
  compute_dtype = settings.compute_dtype
  if compute_dtype == config.AUTO:
    compute_dtype = "bfloat16"
  module = kind(**given, dtype=jnp.dtype(compute_dtype))
  module.check(settings.name)
  return module


def _check_usual(values: dict, name: str):
  """Checks that settings which the model `name` does not have are left at their usual values.

  Raises:
    ValueError: one is not.
  """
  usual = {field.name: USUAL.get(field.name, field.default) for field in dataclasses.fields(Model)}
  usual["attention"] = "xla"
  lacking = [key for key, x in values.items() if x not in (usual[key], config.AUTO)]
  if lacking:
    flags = " ".join(f"--config.model.{key}={getattr(config.Model(), key)}" for key in lacking)
    raise ValueError(
      f"{lacking[0]} is no option of {name}; give {flags} to leave out what it lacks."
    )


@contextlib.contextmanager
def named_as_settings() -> Iterator[None]:
  """Makes errors about a model name the setting.

  Raises:
    ConfigError: in place of a ValueError.
  """
  try:
    yield
  except config.ConfigError:
    raise
  except ValueError as error:
    raise config.ConfigError(f"config.model.{error}") from error


@functools.cache  # each rule of the architecture asks for them
def fields_of(name: str) -> Mapping[str, object]:
  """The architecture settings of the model with this name, {setting: value}.

  Raises:
    ValueError: there is no such model.
  """
  family, fields = described(name)
  return types.MappingProxyType(fields_of_module(family.module(**fields)))


def fields_of_module(module: Network) -> dict:
  """The architecture settings that a module has, {setting: value}."""
  had = {key: getattr(module, key) for key in ARCHITECTURE if hasattr(module, key)}
  return had | {"family": family_of(module)}


def expanded(settings: config.Model) -> config.Model:
  """The settings, with architecture fields that are AUTO filled in from the model's name.

  Raises:
    ValueError: there is no such model.
  """
  left = [key for key in ARCHITECTURE if getattr(settings, key) == config.AUTO]
  if not left:
    return settings
  named = USUAL | fields_of(settings.name)
  return dataclasses.replace(settings, **{key: named[key] for key in left})


def family_of(module: Network) -> str:
  """The name of the family that made the module.

  Raises:
    ValueError: none has modules of this class.
  """
  for name, family in registry.FAMILIES.items():
    if family.module is type(module):
      return name
  raise ValueError(
    f"{type(module).__name__} is the module of no family of models; add a family to "
    "vit_jax.registry.FAMILIES (docs/extending.md)."
  )


def described(name: str) -> tuple[Family, dict]:
  """The family and the module fields of the model with this name.

  Raises:
    ValueError: there is no such model.
  """
  for family in registry.FAMILIES.values():
    fields = family.fields(name)
    if fields is not None:
      return family, fields
  raise _unknown(name)


def _unknown(name: str) -> ValueError:
  """The error for a name that no family has; it suggests the nearest names."""
  wrong = "is no model"
  near = suggestions.alike(name, sorted(names()), 0.5)
  if meaning := translated(name):
    near = [meaning.name, *near]
    if meaning.lacking:
      wrong = f"has {meaning.lacking}"
  nearest = list(dict.fromkeys(near or names()))[:5]
  return ValueError(f"name={shown(name)} {wrong}; nearest: {', '.join(nearest)}.")


def _options(family: Family) -> set[str]:
  """The fields of a family's modules that are options."""
  return {field.name for field in dataclasses.fields(family.module)} - {"parent", "name"}
