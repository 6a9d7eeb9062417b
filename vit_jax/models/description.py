"""What describes a module: its settings, the way back from parameters to config.model."""

import dataclasses

from vit_jax import config
from vit_jax.config.model import ARCHITECTURE, OUTSIDE
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
  """A name, and what the module has otherwise than the name says, with as little as possible.

  What the name says is AUTO. Type, dropout, classes and the like do not belong to the description:
  they keep their defaults.

  Raises:
    ValueError: no name stands for this kind of module.
  """
  candidates = []
  for name in naming.family_of(module).alike(module):
    named = naming.create(name)
    others = {k: x for k, x in architecture(module).items() if x != getattr(named, k)}
    if others.keys() <= set(ARCHITECTURE):
      settings = config.Model(name=name, **others)
      as_many = dataclasses.replace(settings, num_classes=1)
      if not differences(naming.configured(as_many), module):
        candidates.append((len(others), name not in naming.names(), settings))
  if not candidates:
    raise ValueError("these weights are of a model without a name; give config.model.name.")
  return min(candidates, key=lambda candidate: candidate[:2])[-1]


def in_words(module: Network) -> str:
  """A module's name, and what it has otherwise: "ViT-L/16 depth=8"; its class if no name fits."""
  try:
    settings = settings_of(module)
  except ValueError:
    return type(module).__name__
  named = architecture(naming.create(settings.name))
  others = (f"{key}={x}" for key, x in architecture(module).items() if x != named[key])
  return " ".join([settings.name, *others])
