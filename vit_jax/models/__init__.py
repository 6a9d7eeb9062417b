"""The paper's models by name. The only package that imports flax.linen."""

from vit_jax.models.description import settings_of
from vit_jax.models.family import Network
from vit_jax.models.naming import configured, create, expanded, family_of, fields_of, names
from vit_jax.models.recognition import module_of

__all__ = [
  "Network",
  "configured",
  "create",
  "expanded",
  "family_of",
  "fields_of",
  "module_of",
  "names",
  "settings_of",
]
