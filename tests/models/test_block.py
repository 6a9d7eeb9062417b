"""Axial blocks, and so the encoder blocks in them, against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from vit_jax.models.encoder import AxialBlock, EncoderBlock

OPTIONS = dict(mlp_dim=24, heads=2, dropout=0.0, dtype=jnp.float32, attention="xla")


def draw(tokens):
  return np.random.default_rng(tokens).standard_normal((3, tokens, 12)).astype(np.float32)


def run(module, params, x, shared=None):
  apply = jax.jit(lambda params, x: module.apply({"params": params}, x, shared, False))
  y, nothing = apply(params, x)
  assert nothing is None
  return y


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("grid", [(3, 4), (4, 2), (1, 1)])
def test_axial_block_values(grid, relative):
  module = AxialBlock(grid, OPTIONS | dict(relative=relative))
  x = draw(grid[0] * grid[1])
  params = modules.parameters(module, x, None, False)
  expected = reference.axial_block(jax.tree.map(np.float64, params), x.astype(float), grid)
  np.testing.assert_allclose(run(module, params, x), expected, atol=1e-5)


@pytest.mark.parametrize("axial", [False, True])
def test_positions_are_added_to_the_input(axial):
  x, shared = draw(6), draw(6)[:1]
  position = dict(kind="1d", grid=(2, 3), before=0, width=12)
  make = lambda own: (
    AxialBlock((2, 3), OPTIONS, own) if axial else EncoderBlock(**OPTIONS, position=own)
  )
  params = modules.parameters(make(position), x, None, False)
  own = params["posembed_input"]["pos_embedding"]
  rest = {key: value for key, value in params.items() if key != "posembed_input"}
  expected = run(make(None), rest, x + own + shared)
  np.testing.assert_allclose(run(make(position), params, x, shared), expected, atol=1e-5)
