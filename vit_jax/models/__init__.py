"""The paper's models by name. The only package that imports flax.linen."""

from vit_jax.models.description import settings_of
from vit_jax.models.family import Network
from vit_jax.models.naming import configured, create, family_of, names
from vit_jax.models.recognition import module_of

__all__ = ["Network", "configured", "create", "family_of", "module_of", "names", "settings_of"]
