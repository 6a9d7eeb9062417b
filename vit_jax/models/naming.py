"""Makes modules from the paper's names ("ViT-L/16", "R152x2", "R50x1+ViT-B/16")."""

import dataclasses

import jax.numpy as jnp

from vit_jax import config, registry
from vit_jax.config import model_names, suggestions
from vit_jax.config.model import ARCHITECTURE, USUAL
from vit_jax.models.family import Family, Network
from vit_jax.process.text import shown


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
      `vit_jax.models.resnet.ResNet`, which replace the fields that the name implies.

  Returns:
    A module for which `model.apply({"params": params}, images, train=False)` gives
    (logits, features); images are (B, H, W, 3) floats in [-1, 1].

  Raises:
    ValueError: there is no such model, it lacks an option, or options contradict each other.
  """
  meaning = model_names.translated(name)
  if meaning and meaning.same:
    name, options = meaning.name, meaning.options | options
  family, fields = described(name)
  known = _options(family)
  for key in options:
    if key not in known:
      raise ValueError(f"{key} is no option of {name}, which has {', '.join(sorted(known))}.")
  module = family.module(**(fields | options))
  module.check(name)
  return module


def configured(settings: config.Model) -> Network:
  """The module that a config describes; settings that are AUTO have the value of the name.

  If config.model.compute_dtype is AUTO, the module computes in bfloat16.

  Raises:
    ValueError: as `create`, or a setting would make another kind of model than the name says; the
      message begins with the wrong setting.
    ConfigError: the number of classes is left to the training data.
  """
  for key in ("name", "num_classes"):
    if getattr(settings, key) == config.AUTO:
      raise config.ConfigError(
        f"config.model.{key}={config.AUTO} follows from data or weights, which are not known here; "
        "give it."
      )
  changed = {
    field.name: value
    for field in dataclasses.fields(settings)
    if (value := getattr(settings, field.name)) != field.default
  }
  kind = changed.pop("compute_dtype", config.AUTO)
  changed["dtype"] = jnp.dtype("bfloat16" if kind == config.AUTO else kind)
  name = changed.pop("name")
  family, fields = described(name)
  options = _options(family) - (family.kinds.keys() - fields.keys())
  named = family.module(**fields)
  lacks = lambda key: key not in options or getattr(named, key) is None
  absent = lambda key: lacks(key) and changed[key] == USUAL.get(key)
  changed = {key: changed[key] for key in changed if not absent(key)}
  lacking = [key for key in changed if key not in options]
  if lacking:
    flags = " ".join(f"--config.model.{key}={getattr(config.Model(), key)}" for key in lacking)
    other = f", but of {family.kinds[lacking[0]]}" if lacking[0] in family.kinds else ""
    raise ValueError(
      f"{lacking[0]} is no option of {name}{other}; give {flags} to leave out what it lacks."
    )
  return create(name, **changed)


def fields_of(name: str) -> dict:
  """The settings of the architecture that a name stands for, by their names.

  Raises:
    ValueError: there is no such model.
  """
  module = create(name)
  return {key: x for key in ARCHITECTURE if (x := getattr(module, key, None)) is not None}


def expanded(settings: config.Model) -> config.Model:
  """The settings with the fields that their name stands for, where they do not give them.

  Raises:
    ValueError: there is no such model.
  """
  named = USUAL | fields_of(settings.name)
  left = {key for key in named if getattr(settings, key) == config.AUTO}
  return dataclasses.replace(settings, **{key: named[key] for key in left})


def family_of(module: Network) -> Family:
  """The family that made the module."""
  return next(family for family in registry.FAMILIES.values() if family.module is type(module))


def described(name: str) -> tuple[Family, dict]:
  """The family and the fields that one of our names stands for.

  Raises:
    ValueError: there is no such model.
  """
  for family in registry.FAMILIES.values():
    fields = family.fields(name)
    if fields is not None:
      return family, fields
  meaning = model_names.translated(name)
  what = f"has {meaning.lacking}, which no model here has" if meaning and meaning.lacking else ""
  near = [*([meaning.name] if meaning else ()), *suggestions.alike(name, sorted(names()), 0.5)]
  raise ValueError(
    f"name={shown(name)} {what or 'is no model'}; nearest: "
    f"{', '.join(list(dict.fromkeys(near or names()))[:5])}."
  )


def _options(family: Family) -> set[str]:
  """The fields of a family's modules that are options."""
  return {field.name for field in dataclasses.fields(family.module)} - {"parent", "name"}
