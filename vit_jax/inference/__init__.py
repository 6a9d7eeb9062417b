"""A model from anything that holds one, and its predictions."""

from vit_jax.inference.model import LoadedModel, load

__all__ = ["LoadedModel", "load"]
