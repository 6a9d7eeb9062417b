"""Shapes of a model's parameters, traced without a device."""

import jax
import jax.numpy as jnp


def parameter_shapes(module, side: int) -> dict:
  """The tree of the module's parameters as shapes and types, for images of `side` pixels."""
  images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
  init = lambda images: module.init(jax.random.key(0), images, train=False)
  return jax.eval_shape(init, images)["params"]
