"""The Vision Transformer against published counts, independent outputs and its own symmetries."""

import functools
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.models.encoder import in_type
from vit_jax.models.stacking import stack_blocks, unstack_blocks
from vit_jax.storage.tree import nest

TINY = dict(name="ViT-Ti/4", depth=3, width=32, mlp_dim=64, heads=4, num_classes=5)
IMAGES = golden.images(16, batch=3)


@functools.partial(jax.jit, static_argnums=0)
def init(model, images=IMAGES, seed=0):
  return model.init(jax.random.key(seed), images, train=False)["params"]


@functools.partial(jax.jit, static_argnums=0)
def run(model, params, images=IMAGES):
  return model.apply({"params": params}, images, train=False)


def assert_outputs(file, scan, **options):
  """The model computes what an independent implementation does."""
  record = golden.golden(file)
  params = nest(golden.make(record["shapes"]))
  shape = dict(depth=2, width=32, mlp_dim=128, heads=2, num_classes=10)
  model = models.create("ViT-Ti/8", **shape, **options, scan=scan)
  images = golden.images(record["image_size"])
  params = stack_blocks(params) if scan else params
  chex.assert_trees_all_equal_shapes(params, jax.eval_shape(lambda: init(model, images)))
  logits, features = run(model, params, images)
  np.testing.assert_allclose(logits, record["logits"], atol=1e-5, rtol=0)
  if "pre_logits" in record:
    np.testing.assert_allclose(features["pre_logits"], record["pre_logits"], atol=1e-5, rtol=0)


def test_the_representation_layer_of_an_independent_implementation():
  assert_outputs("vit_representation", scan=False, representation_layer=True)


@pytest.mark.parametrize("scan", [False, True])
@pytest.mark.parametrize(("file", "pool"), [("vit", "class_token"), ("vit_gap", "gap")])
def test_logits_of_an_independent_implementation(file, pool, scan):
  assert_outputs(file, scan, pool=pool)


def test_initialisation_of_the_published_code():
  params = init(models.create("ViT-Ti/16", depth=1, head_bias=-10.0), np.zeros((1, 224, 224, 3)))
  encoder = params["Transformer"]
  block = encoder["encoderblock_0"]
  attention, mlp = block["MultiHeadDotProductAttention_1"], block["MlpBlock_3"]

  def assert_xavier(kernel, fan_in, fan_out):
    bound = math.sqrt(6 / (fan_in + fan_out))
    assert np.abs(kernel).max() <= bound
    np.testing.assert_allclose(np.std(kernel), bound / math.sqrt(3), rtol=0.03)

  for name in ("query", "key", "value", "out"):
    assert_xavier(attention[name]["kernel"], 192, 192)
    assert not attention[name]["bias"].any()
  assert_xavier(mlp["Dense_0"]["kernel"], 192, 768)
  assert_xavier(mlp["Dense_1"]["kernel"], 768, 192)
  np.testing.assert_allclose(np.std(mlp["Dense_0"]["bias"]), 1e-6, rtol=0.2)
  np.testing.assert_allclose(np.std(encoder["posembed_input"]["pos_embedding"]), 0.02, rtol=0.03)
  np.testing.assert_allclose(
    np.std(params["embedding"]["kernel"]), 1 / math.sqrt(16 * 16 * 3), rtol=0.03
  )
  assert not params["embedding"]["bias"].any()
  assert not params["cls"].any()
  assert not params["head"]["kernel"].any()
  assert (params["head"]["bias"] == -10).all()


def test_blocks_are_cast_but_for_their_layer_norms():
  model = models.create(**TINY, scan=True, axial=True, pool="gap")
  cast = jax.eval_shape(lambda: in_type(init(model)["Transformer"]["encoderblock"], jnp.bfloat16))
  for path, leaf in jax.tree_util.tree_leaves_with_path(cast):
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    assert leaf.dtype == (jnp.float32 if "LayerNorm" in name else jnp.bfloat16), name


def test_the_backward_pass_of_scan_is_not_handed_the_blocks_parameters_once_more():
  model = models.create(**TINY, scan=True, dtype=jnp.bfloat16)
  params = jax.eval_shape(lambda: init(model))
  loss = lambda p: jnp.sum(model.apply({"params": p}, IMAGES, train=False)[0])
  text = jax.make_jaxpr(jax.grad(loss))(params)
  scans = [eqn for eqn in text.eqns if eqn.primitive.name == "scan"]
  assert len(scans) == 2
  kernel = (TINY["depth"], TINY["width"], TINY["mlp_dim"])
  made = [[x.aval.str_short() for x in eqn.outvars if x.aval.shape == kernel] for eqn in scans]
  assert made == [[], ["bfloat16[3,32,64]"]]  # the gradient alone, to be added up in this type


def test_converters_undo_each_other():
  params = modules.parameters(models.create(**TINY), IMAGES, train=False)
  chex.assert_trees_all_equal(unstack_blocks(stack_blocks(params)), params)
  shapes = jax.eval_shape(lambda: init(models.create(**TINY, scan=True)))
  chex.assert_trees_all_equal_shapes(stack_blocks(params), shapes)
  on_host = stack_blocks(jax.device_get(params))
  assert {type(leaf) for leaf in jax.tree.leaves(on_host)} == {np.ndarray}


def test_stacking_refuses_a_gap_in_the_blocks():
  params = modules.parameters(models.create(**TINY), IMAGES, train=False)
  del params["Transformer"]["encoderblock_1"]
  with pytest.raises(ValueError, match=r"\[0, 2\].*without gaps"):
    stack_blocks(params)


def test_stacked_blocks_start_from_different_draws():
  kernel = init(models.create(**TINY, scan=True))["Transformer"]["encoderblock"]["MlpBlock_3"][
    "Dense_0"
  ]["kernel"]
  assert kernel.shape == (3, 32, 64)
  assert not np.allclose(kernel[0], kernel[1])


@pytest.mark.parametrize("side", [(16, 16), (8, 24), (32, 4)])
def test_any_size_that_the_patches_tile(side):
  model = models.create(**TINY)
  images = np.zeros((2, *side, 3), np.float32)
  (logits, features), _ = jax.eval_shape(
    lambda: model.init_with_output(jax.random.key(0), images, train=False)
  )
  assert logits.shape == (2, 5)
  assert features["pre_logits"].shape == (2, 32)
  assert features["patches"].shape == (2, side[0] * side[1] // 16, 32)


@pytest.mark.parametrize("side", [(18, 16), (16, 15)])
def test_other_sizes_are_refused_with_both_numbers(side):
  with pytest.raises(ValueError, match=rf"{side[0]} x {side[1]} pixels.*4 x 4"):
    init(models.create(**TINY), np.zeros((1, *side, 3)))


def test_all_matmuls_but_the_logits_are_bfloat16_where_it_is_asked_for():
  model = models.create(**TINY, dtype=jnp.bfloat16, representation_layer=True)
  text = str(jax.make_jaxpr(lambda p: run(model, p, IMAGES))(jax.eval_shape(lambda: init(model))))
  types = re.findall(r"(\w+)\[[\d,]+\] = dot_general", text)
  # In each of three blocks: q, k, v, out, the weighted sum and two of the MLP; attention's logits.
  # Then the patch embedding and the representation layer; the head.
  assert sorted(types) == ["bf16"] * (3 * 7 + 2) + ["f32"] * (3 + 1)
  # The softmax and the statistics of LayerNorm: two in each of three blocks, one at the end.
  assert set(re.findall(r"(\w+)\[[\d,]+\] = exp ", text)) == {"f32"}
  assert re.findall(r"(\w+)\[[\d,]+\] = rsqrt ", text) == ["f32"] * 7


def test_dropout_stands_after_the_position_embeddings_and_each_dense_layer_but_q_k_v():
  model = models.create(**TINY, dropout=0.5, representation_layer=True)
  params = jax.eval_shape(lambda: init(model))
  rngs = {"dropout": jax.random.key(0)}
  apply = lambda p: model.apply({"params": p}, IMAGES, train=True, rngs=rngs)
  program = str(jax.make_jaxpr(apply)(params))
  draws = re.findall(r"random_split\[shape=\(([\d, ]+)\)\]", program)
  width, mlp_dim = "3, 17, 8", "3, 17, 16"  # two words for four elements
  # The sum; then out, Dense_0 and Dense_1 of each block. Not (3, 4, 17, 17), attention's weights.
  assert draws == [width] + 3 * [width, mlp_dim, width]
