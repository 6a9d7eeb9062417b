"""Encoder blocks against NumPy in float64, and axial blocks on a grid of one line."""

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
def test_encoder_block_values(relative):
  module, x = EncoderBlock(**OPTIONS, relative=relative), draw(5)
  params = modules.parameters(module, x, None, False)
  expected = reference.encoder_block(jax.tree.map(np.float64, params), x.astype(float))
  np.testing.assert_allclose(run(module, params, x), expected, atol=1e-5)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("grid", [(3, 4), (4, 2), (1, 1)])
def test_axial_block_values(grid, relative):
  module = AxialBlock(grid, OPTIONS | dict(relative=relative))
  x = draw(grid[0] * grid[1])
  params = modules.parameters(module, x, None, False)
  expected = reference.axial_block(jax.tree.map(np.float64, params), x.astype(float), grid)
  np.testing.assert_allclose(run(module, params, x), expected, atol=1e-5)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(
  ("grid", "part", "other"), [((1, 7), "row", "column"), ((7, 1), "column", "row")]
)
def test_on_one_line_the_part_along_it_is_full_attention(grid, part, other, relative):
  options = OPTIONS | dict(relative=relative)
  axial, x = AxialBlock(grid, options), draw(7)
  params = modules.parameters(axial, x, None, False)
  # Without what it adds, the part across the line passes its input on.
  attention, mlp = "MultiHeadDotProductAttention_1", "MlpBlock_3"
  silent = params[other]
  silent[attention]["out"] = jax.tree.map(np.zeros_like, silent[attention]["out"])
  silent[mlp]["Dense_1"] = jax.tree.map(np.zeros_like, silent[mlp]["Dense_1"])
  expected = run(EncoderBlock(**options), params[part], x)
  np.testing.assert_allclose(run(axial, params, x), expected, atol=1e-6)
  assert np.abs(expected - x).max() > 0.1


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
