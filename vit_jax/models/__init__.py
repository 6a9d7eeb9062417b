"""The paper's models by name. The only package that imports flax.linen."""

from vit_jax.models.naming import create, names

__all__ = ["create", "names"]
