"""Vision Transformer (arXiv 2010.11929): pre-training and fine-tuning in JAX and Flax."""


def load(source, image_size: int = 0, *, average: bool = True):
  """A model that predicts: `vit_jax.inference.load`, which documents the arguments."""
  from vit_jax.process import variables

  variables.check()
  from vit_jax import inference  # imports JAX, which the command line does without

  return inference.load(source, image_size, average=average)
