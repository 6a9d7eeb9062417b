"""Attention pooling against NumPy in float64, and its published names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.models.pooling import AttentionPooling
from vit_jax.storage.tree import name_of

OPTIONS = dict(dtype=jnp.float32, attention="xla", activation="gelu_tanh", norm_epsilon=1e-6)
TINY = dict(name="ViT-Ti/4", depth=1, width=32, mlp_dim=64, heads=4, num_classes=5)
NAMES = {
  "probe": (1, 1, 32),
  **{
    f"MultiHeadDotProductAttention_0/{name}/{leaf}": shape
    for name in ("query", "key", "value")
    for leaf, shape in (("kernel", (32, 4, 8)), ("bias", (4, 8)))
  },
  "MultiHeadDotProductAttention_0/out/kernel": (4, 8, 32),
  "MultiHeadDotProductAttention_0/out/bias": (32,),
  "LayerNorm_0/scale": (32,),
  "LayerNorm_0/bias": (32,),
  "MlpBlock_0/Dense_0/kernel": (32, 64),
  "MlpBlock_0/Dense_0/bias": (64,),
  "MlpBlock_0/Dense_1/kernel": (64, 32),
  "MlpBlock_0/Dense_1/bias": (32,),
}


@pytest.mark.parametrize("tokens", [1, 6])
def test_values(tokens):
  module = AttentionPooling(mlp_dim=24, heads=3, **OPTIONS)
  x = np.random.default_rng(0).standard_normal((2, tokens, 12)).astype(np.float32)
  params = modules.parameters(module, x)
  wide = jax.tree.map(np.float64, params)
  probe = np.repeat(wide["probe"], 2, axis=0)
  y = reference.attention(wide["MultiHeadDotProductAttention_0"], probe, x.astype(float))
  y = y + reference.mlp(wide["MlpBlock_0"], reference.layer_norm(wide["LayerNorm_0"], y))
  np.testing.assert_allclose(jax.jit(module.apply)({"params": params}, x), y[:, 0], atol=1e-5)


def test_names_and_shapes():
  model = models.create(**TINY, pool="map")
  params = modules.parameters(model, golden.images(16), train=False)
  named = jax.tree_util.tree_leaves_with_path(params["MAPHead_0"])
  assert {name_of(path): leaf.shape for path, leaf in named} == NAMES
  assert params.keys() == {"embedding", "Transformer", "MAPHead_0", "head"}


@pytest.mark.parametrize("registers", [0, 2])
def test_the_head_sees_the_pooled_patches(registers):
  """As in timm, registers are not pooled."""
  model = models.create(**TINY, pool="map", registers=registers)
  images = golden.images(16)
  params = modules.parameters(model, images, train=False)
  _, features = modules.run(model, params, images)
  pooling = AttentionPooling(mlp_dim=64, heads=4, **OPTIONS)
  expected = pooling.apply({"params": params["MAPHead_0"]}, features["patches"])
  assert features["patches"].shape == (2, 16, 32)
  np.testing.assert_allclose(features["pre_logits"], expected, atol=1e-5)
