"""Parts of later models' blocks against their formulas in NumPy, float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from vit_jax import models
from vit_jax.models import rotary
from vit_jax.models.attention import Attention
from vit_jax.models.layers import RMSNorm
from vit_jax.models.mlp import MlpBlock
from vit_jax.models.parts import Parts
from vit_jax.models.relative_bias import RelativeBias

X = np.random.default_rng(0).normal(size=(2, 7, 16)).astype(np.float32)
WIDE = X.astype(float)
GRID, BEFORE = (2, 3), 1


def started(module, *inputs, **options):
  """Parameters, and the same in float64."""
  params = modules.parameters(module, *inputs, **options)
  return params, jax.tree.map(np.float64, params)


def rms_norm(params, x, epsilon=1e-6):
  return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * params["scale"]


def silu(x):
  return x / (1 + np.exp(-x))


def test_rms_norm():
  module = RMSNorm(jnp.float32, 1e-2)
  params, wide = started(module, X)
  found = module.apply({"params": params}, X)
  np.testing.assert_allclose(found, rms_norm(wide, WIDE, 1e-2), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_gated_mlp_with_a_norm_inside(bias):
  module = MlpBlock(24, 0.0, jnp.float32, "silu", "gated", "rms", 1e-6, bias)
  params, wide = started(module, X, train=False)
  assert ("bias" in params["Dense_1"]) == bias
  of = lambda name, x: x @ wide[name]["kernel"] + wide[name].get("bias", 0)
  hidden = silu(of("Dense_gate", WIDE)) * of("Dense_0", WIDE)
  expected = of("Dense_1", rms_norm(wide["LayerNorm_hidden"], hidden))
  found = module.apply({"params": params}, X, train=False)
  np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def complex_turns(convention, channels, side):
  """The turn of each pair of channels of each token as a complex number, (tokens, channels / 2)."""
  rows, columns = (x.reshape(-1).astype(float) for x in np.indices(GRID))
  rows, columns = rows + convention.offset, columns + convention.offset
  if convention.centred:
    rows, columns = ((x + 0.5) / n * 2 - 1 for x, n in zip((rows, columns), GRID, strict=True))
  elif side:
    rows, columns = (x * side / n for x, n in zip((rows, columns), GRID, strict=True))
  rates = convention.base ** -(np.arange(channels // 4) / (channels // 4))
  rates = rates * (2 * np.pi if convention.centred else 1)
  axes = (columns, rows) if convention.columns_first else (rows, columns)
  angles = np.concatenate([axis[:, None] * rates for axis in axes], axis=1)
  return np.exp(1j * np.concatenate([np.zeros((BEFORE, channels // 2)), angles]))


FIXED = {name: c for name, c in rotary.CONVENTIONS.items() if not c.learned}


@pytest.mark.parametrize(("name", "side"), [*((name, 0) for name in FIXED), ("eva02", 5)])
def test_pairs_of_channels_are_turned_as_complex_numbers(name, side):
  convention = rotary.CONVENTIONS[name]
  x = X.reshape(2, 7, 2, 8)
  by = rotary.turns(convention, GRID, BEFORE, 8, side)
  found = np.asarray(rotary.turned(convention, x, by))
  pairs = (
    (slice(None, 4), slice(4, None))
    if convention.halves
    else (slice(0, None, 2), slice(1, None, 2))
  )
  numbers = x[..., pairs[0]] + 1j * x[..., pairs[1]]
  expected = numbers * complex_turns(convention, 8, side)[:, None]
  np.testing.assert_allclose(found[..., pairs[0]], expected.real, atol=1e-5)
  np.testing.assert_allclose(found[..., pairs[1]], expected.imag, atol=1e-5)


def test_learned_frequencies_turn_by_columns_and_rows():
  convention = rotary.CONVENTIONS["mixed"]
  frequencies = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
  cos, sin = rotary.learned_turns(convention, frequencies, GRID, BEFORE)
  rows, columns = (x.reshape(-1) for x in np.indices(GRID))
  angles = columns[:, None, None] * frequencies[0] + rows[:, None, None] * frequencies[1]
  angles = np.repeat(np.pad(angles, ((1, 0), (0, 0), (0, 0))), 2, axis=-1)
  np.testing.assert_allclose(cos[0], np.cos(angles), atol=1e-5)
  np.testing.assert_allclose(sin[0], np.sin(angles), atol=1e-5)


@pytest.mark.parametrize("kind", ["relative_table", "relative_mlp"])
def test_relative_biases_by_offsets(kind):
  module = RelativeBias(kind, GRID, BEFORE, heads=2, hidden=5)
  params, wide = started(module)
  found = np.asarray(module.apply({"params": params}))
  assert found.shape == (1, 2, 7, 7)
  places = np.stack(np.indices(GRID), axis=-1).reshape(-1, 2)
  for q, here in enumerate(places):
    for k, there in enumerate(places):
      down, right = here - there
      if kind == "relative_table":
        expected = wide["pos_embedding_bias"][(down + 1) * 5 + right + 2]
      else:
        log = lambda d: np.sign(d) * np.log1p(abs(d))
        hidden = np.maximum(reference.dense(wide["Dense_0"], np.array([log(down), log(right)])), 0)
        expected = reference.dense(wide["Dense_1"], hidden)
      np.testing.assert_allclose(found[0, :, q + 1, k + 1], expected, atol=1e-5)
  last = wide["pos_embedding_bias"][-3:] if kind == "relative_table" else np.zeros((3, 2))
  np.testing.assert_allclose(found[0, :, 0, 1:], np.repeat(last[0][:, None], 6, axis=1))
  np.testing.assert_allclose(found[0, :, 1:, 0], np.repeat(last[1][:, None], 6, axis=1))
  np.testing.assert_allclose(found[0, :, 0, 0], last[2])


def test_fewer_heads_of_keys_and_no_bias_of_keys_and_a_norm_of_the_heads():
  parts = Parts(kv_heads=2, qkv_bias="no_key", attention_norm=True, dense_bias=False, norm="rms")
  module = Attention(4, jnp.float32, parts=parts)
  params, wide = started(module, X)
  assert "bias" not in params["key"]
  assert "bias" not in params["out"]
  query, key, value = (
    np.einsum("bnd,dhk->bhnk", WIDE, wide[name]["kernel"])
    + np.asarray(wide[name].get("bias", np.zeros((1, 4))))[:, None]
    for name in ("query", "key", "value")
  )
  key, value = (np.repeat(x, 2, axis=1) for x in (key, value))
  weights = reference.softmax(query @ key.swapaxes(-1, -2) / 2)
  y = (weights @ value).swapaxes(1, 2).reshape(2, 7, 16)
  y = rms_norm(wide["LayerNorm_heads"], y)
  expected = y @ wide["out"]["kernel"].reshape(16, 16)
  np.testing.assert_allclose(module.apply({"params": params}, X), expected, atol=1e-5)


def test_differential_attention():
  module = Attention(2, jnp.float32, parts=Parts(differential=True))
  params, wide = started(module, X, start=0.3)
  query, key, value = (
    np.einsum("bnd,dhk->bhnk", WIDE, wide[name]["kernel"]) + wide[name]["bias"][:, None]
    for name in ("query", "key", "value")
  )
  first, second = (
    reference.softmax(query[..., half] @ key[..., half].swapaxes(-1, -2) / 2)
    for half in (slice(4), slice(4, None))
  )
  factors = lambda name, i: wide[f"lambda_{name}_{i}"]["scale"]
  power = lambda i: np.exp(factors("query", i) @ factors("key", i))
  y = (first - (power(1) - power(2) + 0.3) * second) @ value
  y = rms_norm(wide["LayerNorm_head"], y, 1e-5) * 0.7
  expected = np.einsum("bhnk,hkd->bnd", y, wide["out"]["kernel"]) + wide["out"]["bias"]
  np.testing.assert_allclose(module.apply({"params": params}, X, start=0.3), expected, atol=1e-5)


SMALL = dict(name="ViT-B/4", depth=2, width=16, mlp_dim=24, heads=2, num_classes=5)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 12, 3)).astype(np.float32)
# Every part once, in models that have several.
MIXES = {
  "eva02": dict(
    **dict(rotary="eva02", rotary_side=4, mlp="gated", activation="silu", mlp_norm=True),
    **dict(qkv_bias="no_key", attention_norm=True, pool="gap_beside_token", final_norm="pooled"),
  ),
  "parallel": dict(
    **dict(layout="parallel", norm="rms", qk_norm=True, first_norm="tokens", patch_bias=False),
    **dict(layer_scale=True, rotary="mixed", positions="none", final_norm="none"),
  ),
  "biases": dict(
    **dict(positions="relative_mlp", relative_dim=6, position_place="every_layer_shared"),
    **dict(norm_place="after", parallel_branches=2, first_norm="patches", pool="gap"),
  ),
  "table": dict(positions="relative_table", dense_bias=False, pool="map_with_token", pool_heads=4),
  "grouped": dict(
    **dict(kv_heads=1, layer_scale=True, layer_scale_place="attention", registers=2),
    **dict(rotary="dinov3", positions="none", pool="map_of_all", pool_mlp_dim=20),
  ),
  "differential": dict(differential=True, pool="distilled"),
  # Values that say the same as the usual ones, so that parameters show either.
  "all": dict(pool="map_of_all", layer_scale_place="attention"),
  "pooling": dict(pool="map", pool_heads=2, pool_mlp_dim=24),
  "windows": dict(
    **dict(window=2, global_blocks=(1,), relative_axes=True, pool="gap", final_norm="none"),
    **dict(neck="convolutions", neck_dim=12),
  ),
}
made = pytest.mark.parametrize("mix", MIXES)


def module_of(mix, **options):
  return models.create(**SMALL | MIXES[mix] | options)


@made
def test_parameters_and_settings_tell_the_model(mix):
  module = module_of(mix)
  shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), IMAGES, train=False))["params"]
  settings = models.settings_of(module)
  assert models.module_of(shapes, settings) == module
  assert models.configured(settings.with_classes(5)).clone(dtype=jnp.float32) == module
