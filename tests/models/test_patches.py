"""Patch embedding against loops over the patches and against a convolution."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from vit_jax.models.vit import PatchEmbedding


@pytest.mark.parametrize(
  ("patch", "height", "width", "channels"), [(4, 8, 12, 3), (3, 6, 3, 2), (1, 2, 3, 5)]
)
def test_every_patch_in_raster_order(patch, height, width, channels):
  x = np.random.default_rng(0).standard_normal((2, height, width, channels)).astype(np.float32)
  module = PatchEmbedding(patch, 7, jnp.float32)
  params = modules.parameters(module, x)
  kernel = np.float64(params["kernel"]).reshape(-1, 7)
  expected = [
    x[:, y : y + patch, z : z + patch].reshape(2, -1) @ kernel + params["bias"]
    for y in range(0, height, patch)
    for z in range(0, width, patch)
  ]
  actual = jax.jit(module.apply)({"params": params}, x)
  np.testing.assert_allclose(actual, np.stack(expected, axis=1), atol=1e-5)


def test_initial_values_of_the_convolution():
  """A seed still gives the same parameters as in earlier releases."""
  x = jnp.zeros((1, 8, 8, 3))
  draw = lambda module: module.init(jax.random.key(3), x)["params"]
  ours = draw(PatchEmbedding(4, 6, jnp.float32))
  convolution = draw(nn.Conv(6, (4, 4), strides=4, padding="VALID"))
  assert jax.tree.map(jnp.shape, ours) == jax.tree.map(jnp.shape, convolution)
  jax.tree.map(np.testing.assert_array_equal, ours, convolution)
