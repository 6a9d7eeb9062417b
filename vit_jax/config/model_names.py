"""Names that other libraries have for models: which settings of ours they stand for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_jax import registry
from vit_jax.config.model import ARCHITECTURE, Model
from vit_jax.config.run import Config


@dataclasses.dataclass(frozen=True)
class Translated:
  """The meaning of another library's name of a model.

  Attributes:
    name: our name of the same architecture, or of the nearest one.
    options: the settings of config.model that the architecture has otherwise than `name` says.
    image_size: side of the images that the name tells, pixels; 0: it tells none.
    lacking: a component of that architecture which no model of this project has; "": none.
    sure: whether the name is known, not just similar to a known one.
  """

  name: str
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  image_size: int = 0
  lacking: str = ""
  sure: bool = True

  @property
  def same(self) -> bool:
    """Whether ours is the same architecture."""
    return self.sure and not self.lacking


def translated(name: str) -> Translated | None:
  """The meaning of `name`, ignoring case; None for our own names and for unknown ones."""
  if not name:  # no family is imported for it, because that imports JAX
    return None
  families = [*registry.FAMILIES.values()]
  if any(family.fields(name) is not None for family in families):
    return None
  found = (translate(name.lower()) for translate in registry.MODEL_NAMES.values())
  return next((meaning for meaning in found if meaning is not None), None)


def ours(name: str) -> str:
  """Our name of the architecture; `name` itself if it is ours, or not known."""
  meaning = translated(name)
  if meaning and meaning.same:
    return meaning.name
  return name


def settings_of(name: str) -> dict[str, Any]:
  """The settings that another library's name stands for, such as {"model.name": "ViT-S/16"}.

  They are the whole architecture, so that nothing remains of a recipe's, and the image size if the
  name tells it. {}: the name is ours, or not known.
  """
  meaning = translated(name)
  if meaning is None or not meaning.same:
    return {}
  usual = Model()
  keys = (*ARCHITECTURE, "layer_scale_init")
  options = {key: getattr(usual, key) for key in keys} | meaning.options
  settings = {"model.name": meaning.name}
  settings |= {f"model.{key}": value for key, value in options.items()}
  if meaning.image_size:
    settings["data.image_size"] = meaning.image_size
  return settings


def origins(name: str, config: Config) -> dict[str, str]:
  """The origins of the settings that another library's name stands for, as in config.origins.

  Settings of the architecture that our own name tells anyway are left out.

  Args:
    name: the other library's.
    config: the settings with those of the name.
  """
  usual = Model()
  weights = "" if config.init_from else ", without its weights"
  told = {"model.name": f"the architecture of {name}{weights}"}
  for key, value in settings_of(name).items():
    group, _, field = key.partition(".")
    if getattr(getattr(config, group), field) == value != getattr(usual, field, None):
      told.setdefault(key, name)
  return told
