"""Loads a model from a workdir, a checkpoint or a file of weights, and predicts with it."""

from vit_jax.inference.model import LoadedModel, load

__all__ = ["LoadedModel", "load"]
