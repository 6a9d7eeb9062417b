"""Where dropout stands (Appendix B.1): behind dense layers and position embeddings, not residuals.

The rate is 1/2, so what stays is doubled. Dense layers have a kernel of zeros and a bias of
another value each: then their outputs are known, and tell where they were dropped.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from vit_jax.models.encoder import Encoder, EncoderBlock
from vit_jax.models.mlp import MlpBlock

RNGS = {"dropout": jax.random.key(5)}
BLOCK = EncoderBlock(mlp_dim=64, heads=2, dropout=0.5, dtype=jnp.float32, attention="xla")
X = np.random.default_rng(0).normal(size=(4, 9, 32)).astype(np.float32)


def constant(params, value):
  """A dense layer's parameters that make every output `value`."""
  kernel, bias = (np.zeros_like(params[name]) for name in ("kernel", "bias"))
  return {"kernel": kernel, "bias": bias + np.float32(value)}


@jax.jit
def apply_block(variables):
  return BLOCK.apply(variables, X, None, True, rngs=RNGS)


def block_output(*, attention, mlp):
  """The block's output for X with dropout, its two parts being constants."""
  params = modules.parameters(BLOCK, X, None, False)
  parts = params["MultiHeadDotProductAttention_1"], params["MlpBlock_3"]
  parts[0]["out"] = constant(parts[0]["out"], attention)
  parts[1]["Dense_1"] = constant(parts[1]["Dense_1"], mlp)
  return np.asarray(apply_block({"params": params})[0])


def test_residuals_are_never_dropped():
  np.testing.assert_array_equal(block_output(attention=0, mlp=0), X)


@pytest.mark.parametrize("part", ["attention", "mlp"])
def test_both_parts_are_dropped_before_they_are_added(part):
  added = block_output(**{"attention": 0, "mlp": 0, part: 8.0}) - X
  dropped = np.abs(added) < 1e-3
  np.testing.assert_allclose(added[~dropped], 16.0, atol=1e-4)
  assert abs(dropped.mean() - 0.5) < 4 * 0.5 / np.sqrt(X.size)


def test_the_hidden_layer_of_the_mlp_is_dropped_behind_its_activation():
  """Outputs are sums over the hidden units: with a single unit, all or nothing."""
  mlp = MlpBlock(mlp_dim=1, dropout=0.5, dtype=jnp.float32)
  params = modules.parameters(mlp, X, train=False)
  params["Dense_0"] = constant(params["Dense_0"], -1.0)
  params["Dense_1"] = {"kernel": np.ones((1, 32), np.float32), "bias": np.zeros(32, np.float32)}
  rows = np.asarray(mlp.apply({"params": params}, X, train=True, rngs=RNGS))
  hidden = np.asarray(jax.nn.gelu(-1.0))  # a dropped -1.0 would give 0, a doubled one gelu(-2)
  kept = rows != 0
  np.testing.assert_allclose(rows[kept], 4 * hidden, rtol=1e-5)
  whole = ~kept.any(axis=-1)  # the hidden unit of the token was dropped
  assert abs(whole.mean() - 0.5) < 4 * 0.5 / np.sqrt(whole.size)
  assert abs(kept[~whole].mean() - 0.5) < 4 * 0.5 / np.sqrt(kept[~whole].size)


def encoder(**changes):
  """A small encoder."""
  fields = dict(grid=(3, 3), before=0, depth=1, mlp_dim=64, heads=2, dropout=0.5)
  fields |= dict(positions="1d", position_place="stem", axial=False, dtype=jnp.float32)
  fields |= dict(attention="xla", remat="none", activation="gelu", norm_epsilon=1e-6, scan=False)
  return Encoder(**fields | changes)


def test_tokens_are_dropped_behind_the_position_embeddings():
  module = encoder()
  params = modules.parameters(module, X, train=False, method="add_positions")
  found = np.asarray(
    module.apply({"params": params}, X, train=True, method="add_positions", rngs=RNGS)
  )
  whole = X + params["posembed_input"]["pos_embedding"]
  kept = found != 0
  np.testing.assert_allclose(found[kept], 2 * whole[kept], rtol=1e-6)
  assert abs(kept.mean() - 0.5) < 4 * 0.5 / np.sqrt(X.size)


@pytest.mark.parametrize("scan", [False, True])
def test_each_block_drops_others(scan):
  """Where two blocks add the same constant, it stays twice, once or never."""
  module, zeros = encoder(depth=2, scan=scan), np.zeros_like(X)
  params = modules.parameters(module, zeros, train=False)
  params["encoder_norm"] = {"scale": np.ones(32, np.float32), "bias": np.zeros(32, np.float32)}
  for name in params.keys() - {"encoder_norm"}:
    attention, mlp = params[name]["MultiHeadDotProductAttention_1"], params[name]["MlpBlock_3"]
    attention["out"], mlp["Dense_1"] = constant(attention["out"], 0), constant(mlp["Dense_1"], 8)
  apply = jax.jit(lambda params: module.apply({"params": params}, zeros, train=True, rngs=RNGS))
  found = np.asarray(apply(params))
  assert {len(np.unique(row.round(3))) for row in found.reshape(-1, 32)} == {3}
