"""Vision Transformer (arXiv 2010.11929): pre-training and fine-tuning in JAX and Flax."""

__version__ = "0.2.0"


def load(source, image_size: int = 0, *, average: bool = True):
  """A model that predicts: `vit_jax.inference.load`, which documents the arguments."""
  from vit_jax.process import program

  program.check_libraries()
  program.check_jax()
  with program.said_of_devices():
    import jax  # late: the command line does without

    from vit_jax import inference

    jax.devices()  # which predictions need: a refusal comes now
    return inference.load(source, image_size, average=average)
