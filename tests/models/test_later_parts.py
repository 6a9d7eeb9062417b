"""Parts that the paper's models lack, against NumPy in float64: registers, QK-norm, LayerScale,
fixed positions, stochastic depth; with scan and remat, in cost, names and parameters.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from tests.models.test_positions import fixed_table
from vit_jax import config, models
from vit_jax.extras import inspection
from vit_jax.models.branches import Branches, StochasticDepth
from vit_jax.models.stacking import stack_blocks, unstack_blocks

SMALL = dict(name="ViT-B/4", depth=3, width=32, mlp_dim=64, heads=2, num_classes=5)
ALL = dict(registers=3, qk_norm=True, layer_scale=True, positions="sincos2d", pool="gap")
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 12, 3)).astype(np.float32)
GRID, PATCHES = (2, 3), 6


def made(**options):
  """A module, and parameters in which nothing is 0."""
  module = models.create(**SMALL | options)
  return module, modules.parameters(module, IMAGES, train=False)


def test_scan_and_remat_change_neither_outputs_nor_gradients():
  module, params = made(**ALL | dict(depth=2))
  expected, wanted = modules.logits_and_grads(module, params, IMAGES)
  other = module.clone(scan=True, remat="dots")
  actual, grads = modules.logits_and_grads(other, stack_blocks(params), IMAGES)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  modules.assert_close(unstack_blocks(grads), wanted)


@pytest.mark.parametrize("rule", ["linear", "uniform"])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_rates_of_stochastic_depth(rule, depth):
  rates = Branches(stochastic_depth=0.4, stochastic_depth_rule=rule).rates(depth)
  linear = [0.4 * i / max(depth - 1, 1) for i in range(depth)]
  np.testing.assert_allclose(rates, linear if rule == "linear" else [0.4] * depth, rtol=1e-6)
  assert Branches().rates(depth) is None


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_stochastic_depth_leaves_out_whole_images(dtype):
  y = jnp.ones((4000, 2, 3), dtype)
  out = StochasticDepth().apply({}, y, 0.3, rngs={"dropout": jax.random.key(0)})
  assert out.dtype == dtype
  out = np.float32(out)
  assert (out == out[:, :1, :1]).all()
  assert set(np.unique(out)) == {0, float(jnp.asarray(1 / 0.7, dtype))}
  zeros = (out[:, 0, 0] == 0).sum()
  assert abs(zeros - 1200) < 4 * math.sqrt(4000 * 0.3 * 0.7)


@pytest.mark.parametrize("scan", [False, True])
def test_each_branch_of_each_block_is_drawn_by_itself_at_its_rate(scan):
  """Blocks whose branches add 1 to a channel of their own tell what was left out of which image."""
  module = models.create(**SMALL | dict(depth=2, scan=scan, pool="gap", positions="none"))
  module = module.clone(stochastic_depth=0.5)
  params = jax.tree.map(np.zeros_like, modules.parameters(module, IMAGES, train=False))
  apart = unstack_blocks(params)
  for i in range(2):
    block = apart["Transformer"][f"encoderblock_{i}"]
    block["MultiHeadDotProductAttention_1"]["out"]["bias"][2 * i] = 1
    block["MlpBlock_3"]["Dense_1"]["bias"][2 * i + 1] = 1
  params = stack_blocks(apart) if scan else apart

  images = np.zeros((1000, 1), np.float32)
  params["Transformer"]["encoder_norm"]["scale"][:] = 1
  rngs = {"dropout": jax.random.key(0)}
  out = module.apply({"params": params}, images, method=encoded, rngs=rngs)
  present = np.asarray(out[:, 0, :4] > out[:, 0, 4:5] + 1e-3)
  assert present[:, :2].all()  # the first block has the rate 0
  for share in present[:, 2:].mean(axis=0):
    assert abs(share - 0.5) < 4 * math.sqrt(0.25 / 1000)
  both = (present[:, 2] & present[:, 3]).mean()
  assert abs(both - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 1000)


def encoded(module, images):
  return module.encode(jnp.zeros((len(images), PATCHES, 32)), GRID, train=True)


def test_evaluation_draws_nothing():
  module, params = made(**ALL)
  with_depth = module.clone(stochastic_depth=0.5)
  np.testing.assert_array_equal(
    modules.run(module, params, IMAGES)[0], modules.run(with_depth, params, IMAGES)[0]
  )


def test_maps_are_those_of_the_normed_queries_and_keys():
  module, params = made(**ALL)
  block = jax.tree.map(np.float64, params["Transformer"]["encoderblock_0"])
  attention = block["MultiHeadDotProductAttention_1"]
  tokens = lambda m: m.add_positions(m.embed(IMAGES), GRID, train=False)
  x = reference.layer_norm(
    block["LayerNorm_0"], np.float64(module.apply({"params": params}, method=tokens))
  )
  query, key = (
    reference.layer_norm(
      attention[f"LayerNorm_{name}"],
      np.einsum("bnd,dhk->bhnk", x, attention[name]["kernel"]) + attention[name]["bias"][:, None],
    )
    for name in ("query", "key")
  )
  expected = reference.softmax(query @ key.swapaxes(-1, -2) / np.sqrt(16))
  first = next(inspection.attention_weights(module, params, IMAGES))
  np.testing.assert_allclose(first, expected, atol=1e-5)


@pytest.mark.parametrize("positions", ["1d", "none", "sincos2d", "sincos2d_mae"])
def test_parameters_tell_the_model_but_for_fixed_positions(positions):
  module, params = made(**ALL | dict(positions=positions, layer_scale_init=1e-4))
  assert models.module_of(params, config.Model(positions=positions)) == module
  if positions != "1d":
    assert models.module_of(params).positions == "none"
    assert models.module_of(params, config.Model(positions="1d")).positions != "1d"
  settings = models.settings_of(module)
  assert models.configured(settings.with_classes(5)).clone(dtype=jnp.float32) == module


def test_initial_values():
  module = models.create(**SMALL | ALL | dict(layer_scale_init=0.25))
  init = lambda: module.init(jax.random.key(0), IMAGES, train=False)["params"]
  params = jax.jit(init)()
  block = params["Transformer"]["encoderblock_1"]
  for name in ("LayerScale_1", "LayerScale_3"):
    np.testing.assert_array_equal(block[name]["scale"], np.full(32, 0.25, np.float32))
  assert params["register_tokens"].shape == (1, 3, 32)


def test_position_tables_are_shown():
  module, params = made(**ALL | dict(pool="class_token"))
  tables = module.position_tables(params, GRID)
  np.testing.assert_allclose(tables["stem"], fixed_table("sincos2d", *GRID, 32), atol=1e-7)


def test_so400m_has_the_size_of_its_name():
  model = models.create("ViT-So400m/14", num_classes=1, pool="map", scan=True)
  shapes = model.parameter_shapes(224)
  assert modules.count(shapes) == pytest.approx(428e6, rel=0.01)


def test_settings_have_their_meaning_in_the_configuration():
  settings = config.Model(**SMALL, **ALL, stochastic_depth=0.1)
  module = models.configured(settings)
  assert module.branches == Branches(layer_scale=True, stochastic_depth=0.1)
  assert (module.registers, module.qk_norm, module.positions) == (3, True, "sincos2d")
