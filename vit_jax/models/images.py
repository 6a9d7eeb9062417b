"""The images that a model takes."""

import jax
import jax.numpy as jnp


def as_input(images: jax.Array, dtype: jnp.dtype) -> jax.Array:
  """Images in [-1, 1] in the type of the computation.

  Raises:
    ValueError: they are integers, so their pixels are not in [-1, 1].
  """
  if not jnp.issubdtype(images.dtype, jnp.floating):
    raise ValueError(
      f"The images are {images.dtype}; a model takes floats in [-1, 1]. For pixels from 0 to 255, "
      "give images / 127.5 - 1."
    )
  return images.astype(dtype)
