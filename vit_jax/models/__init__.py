"""The paper's models by name. The only package that imports flax.linen."""

from vit_jax.models.family import Network
from vit_jax.models.naming import (
  configured,
  create,
  expanded,
  fields_of,
  fields_of_module,
  named_as_settings,
  names,
)
from vit_jax.models.recognition import module_of, settings_of

__all__ = [
  "Network",
  "configured",
  "create",
  "expanded",
  "fields_of",
  "fields_of_module",
  "module_of",
  "named_as_settings",
  "names",
  "settings_of",
]
