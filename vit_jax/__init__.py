"""Vision Transformer (arXiv 2010.11929): pre-training and fine-tuning in JAX and Flax."""

from typing import TYPE_CHECKING

__version__ = "0.2.0"
__all__ = ["Result", "evaluate", "finetune", "load", "recipe", "train"]

if TYPE_CHECKING:
  from vit_jax.api import Result, evaluate, finetune, load, recipe, train


def __getattr__(name: str):
  """The names of `vit_jax.api`, which imports JAX: the command line does without."""
  if name not in __all__:
    raise AttributeError(f"module 'vit_jax' has no attribute {name!r}")
  from vit_jax import api

  return getattr(api, name)
