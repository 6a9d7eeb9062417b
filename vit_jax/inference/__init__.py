"""A model from anything that holds one, and its predictions."""

from vit_jax.inference.model import Model, load

__all__ = ["Model", "load"]
