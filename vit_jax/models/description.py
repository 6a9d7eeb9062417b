"""What describes a module: its settings, the way back from parameters to config.model."""

import dataclasses

from vit_jax import config, registry
from vit_jax.config.model import OUTSIDE, USUAL
from vit_jax.models import naming
from vit_jax.models.family import Network


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
  """config.model of a module: all fields of its architecture, and the nearest of our names.

  Type, dropout, classes and the like do not belong to the description: they keep their defaults.
  The name is AUTO if the family has none for such a module.
  """
  return config.Model(name=_nearest(module)[0], **USUAL | naming.fields_of_module(module))


def in_words(module: Network) -> str:
  """A module's name, and what it has otherwise: "ViT-L/16 depth=8"; its class if it has no name."""
  name, others = _nearest(module)
  if name == config.AUTO:
    return type(module).__name__
  return " ".join([name, *(f"{key}={x}" for key, x in others.items())])


def _nearest(module: Network) -> tuple[str, dict]:
  """The name that says most of a module, and the fields that it has otherwise; AUTO: no name."""
  here, candidates = architecture(module), []
  for name in registry.FAMILIES[naming.family_of(module)].alike(module):
    named = naming.create(name)
    others = {key: x for key, x in here.items() if x != getattr(named, key)}
    candidates.append((len(others), name not in naming.names(), name, others))
  return min(candidates, key=lambda x: x[:2], default=(0, False, config.AUTO, {}))[2:]
