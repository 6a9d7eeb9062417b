"""The settings that describe a module: the way back from parameters to config.model."""

import dataclasses

from vit_jax import config
from vit_jax.models import naming
from vit_jax.models.differences import FIELDS, differences
from vit_jax.models.resnet import ResNet
from vit_jax.models.vit import ViT

SETTINGS = {field.name for field in dataclasses.fields(config.Model)}


def settings_of(module: ViT | ResNet) -> config.Model:
  """A name, and what the module has otherwise than the name says, with as little as possible.

  Type, dropout, classes and the like do not belong to the description: they keep their defaults.

  Raises:
    ValueError: no name stands for this kind of module.
  """
  described = []
  for name in names_like(module):
    usual = naming.create(name)
    other = {key: getattr(module, key) for key in FIELDS if hasattr(module, key)}
    other = {key: value for key, value in other.items() if value != getattr(usual, key)}
    if other.keys() <= SETTINGS:
      settings = config.Model(name=name, **other)
      as_many = dataclasses.replace(settings, num_classes=1)
      if not differences(naming.configured(as_many), module):
        described.append((len(other), name not in naming.NAMES, settings))
  if not described:
    raise ValueError("these weights are of a model without a name; give config.model.name.")
  return min(described, key=lambda one: one[:2])[-1]


def names_like(module: ViT | ResNet) -> list[str]:
  """Names of models of the module's kind, with all known depths of ResNets and sizes of ViTs."""
  if isinstance(module, ResNet):
    factor = max(module.width // 64, 1)
    return [f"Axial-R{d}" if module.heads else f"R{d}x{factor}" for d in naming.STAGES]
  if module.stages is None:
    axial = "Axial-" if module.axial else ""
    return [f"{axial}ViT-{size}/{module.patch}" for size in naming.SIZES]
  if not module.stages:
    return [f"R+ViT-{size}/16" for size in naming.SIZES]
  factors = [f"x{max(module.stem_width // 64, 1)}", ""]  # 1 if the name has none
  stems = [f"R{depth}{factor}" for depth in naming.STAGES for factor in factors]
  return [f"{stem}+ViT-{size}/{n}" for stem in stems for size in naming.SIZES for n in (16, 32)]
