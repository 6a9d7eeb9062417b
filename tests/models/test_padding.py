"""cuDNN's attention takes even numbers of tokens; here XLA computes it, to test the padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules
from tests.models.test_attention import gradients64
from vit_jax import models
from vit_jax.models import attention

SMALL = dict(width=24, mlp_dim=32, heads=3, depth=1, num_classes=5)
VARIANTS = {  # 7 tokens, which are padded, and 6 in "pooling", which are not
  "scan": (
    "ViT-B/8",
    dict(scan=True, remat="dots", depth=2, positions="2d", position_place="every_layer_shared"),
  ),
  "relative": ("ViT-B/8", dict(positions="relative")),
  "every layer": ("ViT-B/8", dict(position_place="every_layer")),
  "pooling": ("ViT-B/8", dict(pool="map")),
  "axial": ("Axial-ViT-B/8", dict(positions="relative")),
}
BY_XLA = functools.partial(jax.nn.dot_product_attention, implementation="xla")


@pytest.fixture(autouse=True)
def cudnn(monkeypatch):
  """In place of cuDNN's attention, XLA's with the same arguments."""

  def instead(query, key, value, *, implementation, **others):
    for tokens in (query.shape[1], key.shape[1]):
      assert tokens % 2 == 0
      assert tokens % 128 != 64
    assert others["key_value_seq_lengths"] is not None
    if others.get("bias") is not None:
      assert others["bias"].shape[2:] == (query.shape[1], key.shape[1])
    return BY_XLA(query, key, value, **others)

  monkeypatch.setattr(jax.nn, "dot_product_attention", instead)


def draw(*shape, seed=0):
  return np.float32(np.random.default_rng(seed).standard_normal(shape))


def assert_near(actual, expected, within=1e-6):
  """The difference is a fraction of the largest number: a key's bias has a gradient of rounding."""
  actual, expected = jax.tree.leaves(actual), jax.tree.leaves(expected)
  largest = max(float(np.abs(x).max()) for x in expected)
  for a, b in zip(actual, expected, strict=True):
    np.testing.assert_allclose(a, b, atol=within * largest)


@pytest.mark.parametrize("name", VARIANTS)
def test_models_compute_the_same(name, monkeypatch):
  model, options = VARIANTS[name]
  module = models.create(model, **SMALL | options, attention="cudnn")
  images = draw(2, 16, 24, 3) / 3  # 6 patches
  params = modules.parameters(module, images, train=False)
  params["head"]["kernel"] = draw(*params["head"]["kernel"].shape, seed=1)

  def both(params, module):
    logits, pull = jax.vjp(lambda p: module.apply({"params": p}, images, train=True)[0], params)
    return logits, pull(jnp.tanh(logits))

  by_cudnn = jax.jit(both, static_argnums=1)(params, module)
  monkeypatch.setattr(jax.nn, "dot_product_attention", jax.tree_util.Partial(_by_xla_alone))
  by_xla = jax.jit(both, static_argnums=1)(params, module.clone(attention="xla"))
  assert_near(by_cudnn[0], by_xla[0])
  assert_near(by_cudnn[1], by_xla[1], within=3e-6)


def _by_xla_alone(*args, implementation, **others):
  assert implementation == "xla"
  return BY_XLA(*args, **others)


@pytest.mark.parametrize(
  ("queries", "keys", "biased"),
  [
    *((5, 5, False), (4, 4, True), (1, 6, True), (3, 8, False), (64, 64, False)),
    *((63, 192, False), (63, 192, True), (1, 128, True)),
  ],
)
def test_any_number_of_tokens(queries, keys, biased):
  of = lambda tokens, seed: draw(2, tokens, 3, 8, seed=seed)
  arrays, slope = (of(queries, 1), of(keys, 2), of(keys, 3)), of(queries, 5)
  bias = draw(2, 3, queries, keys, seed=4) if biased else None

  @jax.jit
  def both(*inputs):
    y, pull = jax.vjp(lambda *a: attention.attend_by_cudnn(*a, keys), *inputs)
    return y, pull(slope)

  expected, *gradients, of_bias = gradients64(*arrays, bias, slope)
  if biased:
    gradients.append(of_bias)
  assert_near(both(*arrays, bias), (expected, gradients))


def test_numbers_of_tokens_that_are_relied_on():
  expected = {1: 2, 2: 2, 62: 62, 63: 66, 64: 66, 65: 66, 128: 128, 191: 194, 192: 194, 197: 198}
  assert {tokens: attention.fitting(tokens) for tokens in expected} == expected
  assert attention.fitting(576) == 578  # 24 x 24 patches


def test_keys_that_do_not_count_change_nothing():
  query, key, value = (draw(2, 6, 3, 8, seed=seed) for seed in range(3))
  of = lambda key, value: attention.attend_by_cudnn(query, key, value, None, 5)
  wild = lambda x: np.where(np.arange(6)[:, None, None] == 5, np.float32(1e3), x)
  np.testing.assert_array_equal(of(wild(key), wild(value)), of(key, value))
  assert_near(of(key, value), BY_XLA(query, key[:, :5], value[:, :5]))


@pytest.mark.parametrize(("options", "pads"), [({}, 1), (dict(pool="gap"), 0)])
def test_tokens_are_padded_once_for_all_blocks(options, pads):
  module = models.create("ViT-B/8", **SMALL | options, attention="cudnn")
  images = jnp.zeros((2, 16, 24, 3))
  params = jax.eval_shape(lambda: module.init(jax.random.key(0), images, train=False))
  text = str(jax.make_jaxpr(lambda p: module.apply(p, images, train=False))(params))
  assert text.count(" pad[") == pads
