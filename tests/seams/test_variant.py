"""A variant of the ViT with memory is one file and one line; all else follows from its tokens.

The toy has memory tokens: learned, before the patches, behind the class token.
"""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import modules, reference
from tests.golden import weights as golden
from tests.models.test_flops import counted
from vit_jax import models, registry, weights
from vit_jax.extras import inspection
from vit_jax.extras.formats import timm
from vit_jax.extras.masked_patches.objective import encoded
from vit_jax.models import vit as vits
from vit_jax.models.family import Family
from vit_jax.models.vit import ViT

pytestmark = pytest.mark.usefixtures("one_device")


class Memory(ViT):
  """A ViT with memory between the class token and the patches."""

  memory: int = 3

  @nn.nowrap
  def learned_tokens(self):
    init = nn.initializers.normal(0.02)
    return super().learned_tokens() | {"memory_tokens": (self.memory, init)}


def fields(name):
  vit, ending, _ = name.rpartition("-memory")
  return vits.fields_of_name(vit) if ending else None


def recognise(params):
  if "memory_tokens" not in params:
    return None
  return vits.recognise(params) | dict(memory=params["memory_tokens"].shape[1])


MEMORY = Family(
  module=Memory,
  names=("ViT-B/16-memory",),
  fields=fields,
  recognise=recognise,
  alike=lambda module: [f"{name}-memory" for name in vits.alike(module)],
)
SMALL = dict(depth=2, width=32, mlp_dim=64, heads=2, num_classes=5)
GRID, PATCHES, COUNT = (2, 3), 6, 3
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 8, 12, 3)).astype(np.float32)
POOLS = pytest.mark.parametrize("pool", ["class_token", "gap", "map"])


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.FAMILIES, "memory", "tests.seams.test_variant:MEMORY")


def toy(images=IMAGES, **options):
  """A module, and parameters in which nothing is 0."""
  module = models.create("ViT-B/4-memory", **SMALL | options)
  return module, modules.parameters(module, images, train=False)


def before(pool):
  return COUNT + (pool == "class_token")


def without_memory(params, pool):
  """The entries of memory are taken out of tables, the offsets to them at both ends."""
  cls = int(pool == "class_token")

  def without(path, leaf):
    if path[-1].key == "pos_embedding":
      return np.concatenate([leaf[:, :cls], leaf[:, before(pool) :]], axis=1)
    return leaf[COUNT:-COUNT] if path[-1].key == "pos_embedding_relative" else leaf

  params = {name: tree for name, tree in params.items() if name != "memory_tokens"}
  return jax.tree_util.tree_map_with_path(without, params)


@POOLS
def test_outputs_are_those_of_the_formulas(pool):
  """Token by token in float64: pooling and "patches" are of the right ones."""
  module, params = toy(pool=pool)
  logits, features = modules.run(module, params, IMAGES)
  if pool == "gap":
    masked = module.apply({"params": params}, IMAGES, method=encoded)
    np.testing.assert_allclose(masked, features["patches"], atol=1e-6)
  params = jax.tree.map(np.float64, params)
  encoder, kernel = params["Transformer"], params["embedding"]["kernel"]
  cut = IMAGES.astype(float).reshape(2, 2, 4, 3, 4, 3).swapaxes(2, 3).reshape(2, PATCHES, -1)
  x = cut @ kernel.reshape(-1, 32) + params["embedding"]["bias"]
  first = [params[name] for name in ("cls", "memory_tokens") if name in params]
  x = np.concatenate([*(np.repeat(tokens, 2, axis=0) for tokens in first), x], axis=1)
  x = x + encoder["posembed_input"]["pos_embedding"]
  for i in range(2):
    x = reference.encoder_block(encoder[f"encoderblock_{i}"], x)
  x = reference.layer_norm(encoder["encoder_norm"], x)
  np.testing.assert_allclose(features["patches"], x[:, -PATCHES:], atol=2e-5)
  if pool != "map":
    pooled = x[:, 0] if pool == "class_token" else x[:, -PATCHES:].mean(axis=1)
    np.testing.assert_allclose(logits, reference.dense(params["head"], pooled), atol=2e-5)


@POOLS
def test_maps_and_distances_are_those_of_the_patches(pool):
  module, params = toy(pool=pool)
  layers = [np.float64(x) for x in inspection.attention_weights(module, params, IMAGES)]
  tokens = before(pool) + PATCHES
  assert layers[0].shape == (2, 2, tokens, tokens)
  queries = slice(0, 1) if pool == "class_token" else slice(before(pool), None)
  raw, _ = inspection.raw(module, params, IMAGES, layer=1, head=1)
  wanted = layers[1][:, 1, queries, -PATCHES:].mean(axis=1)
  np.testing.assert_allclose(raw.reshape(2, PATCHES), wanted, atol=1e-6)

  product = np.eye(tokens)
  for layer in layers:
    product = (np.eye(tokens) + layer.mean(axis=1)) / 2 @ product
  rollout, _ = inspection.rollout(module, params, IMAGES)
  if pool != "map":
    wanted = product[:, queries, -PATCHES:].mean(axis=1)
    np.testing.assert_allclose(rollout.reshape(2, PATCHES), wanted, atol=1e-6)
  assert rollout.shape == (2, *GRID)

  places = 4.0 * np.array([(i, j) for i in range(2) for j in range(3)])
  apart = np.linalg.norm(places[:, None] - places[None], axis=-1)
  among = np.stack([x[..., -PATCHES:, -PATCHES:] for x in layers])
  wanted = ((among * apart).sum(-1) / among.sum(-1)).mean(axis=(1, 3))
  np.testing.assert_allclose(inspection.mean_distances(module, params, IMAGES), wanted, rtol=1e-5)


@pytest.mark.parametrize("pool", ["class_token", "gap"])
@pytest.mark.parametrize(
  ("positions", "place"),
  [
    *((kind, place) for kind in ("1d", "2d") for place in ("stem", "every_layer")),
    ("1d", "every_layer_shared"),
    ("relative", "stem"),
  ],
)
def test_position_tables_are_those_of_the_model_without_memory(pool, positions, place):
  options = dict(pool=pool, positions=positions, position_place=place)
  module, params = toy(**options)
  plain = models.create("ViT-B/4", **SMALL | options)
  theirs = without_memory(params, pool)
  init = lambda: plain.init(jax.random.key(0), IMAGES, train=False)["params"]
  chex.assert_trees_all_equal_shapes(theirs, jax.eval_shape(init))
  tables = plain.position_tables(theirs, GRID)
  assert len(tables) == (2 if place == "every_layer" else positions != "relative")
  chex.assert_trees_all_equal(module.position_tables(params, GRID), tables)
  similarity = inspection.position_similarity
  assert similarity(module, params, GRID)
  chex.assert_trees_all_equal(similarity(module, params, GRID), similarity(plain, theirs, GRID))


@pytest.mark.parametrize("pool", ["class_token", "gap"])
@pytest.mark.parametrize("positions", ["1d", "2d"])
def test_another_size_of_images_resizes_the_entries_of_the_patches(pool, positions):
  options = dict(pool=pool, positions=positions)
  module, params = toy(golden.images(16), **options)
  assert models.module_of(params) == module
  assert module.size_of(params) == 16
  fitted, _ = weights.fit(params, module.parameter_shapes(24), (6, 6))
  plain = models.create("ViT-B/4", **SMALL | options)
  if positions == "1d":
    table, resized = (
      tree["Transformer"]["posembed_input"]["pos_embedding"] for tree in (params, fitted)
    )
    np.testing.assert_array_equal(resized[:, : before(pool)], table[:, : before(pool)])
  wanted, _ = weights.fit(without_memory(params, pool), plain.parameter_shapes(24), (6, 6))
  tables = plain.position_tables(wanted, (6, 6))
  chex.assert_trees_all_equal(module.position_tables(fitted, (6, 6)), tables)


@POOLS
def test_its_cost_is_counted(pool):
  module, params = toy(pool=pool)
  forward = lambda p, x: module.apply({"params": p}, x, train=False)[0]
  jaxpr = jax.make_jaxpr(forward)(params, jnp.zeros((1, 8, 12, 3))).jaxpr
  assert 2 * module.macs(8, 12) == pytest.approx(counted(jaxpr), rel=1e-6)


def test_parameters_tell_how_many_there_are_and_others_have_no_place_for_them():
  module, params = toy(memory=5)
  assert params["memory_tokens"].shape == (1, 5, 32)
  assert models.module_of(params) == module
  with pytest.raises(ValueError, match="no place for memory_tokens"):
    timm.to_timm(params)
  with pytest.raises(ValueError, match="no place for tokens before the patches, 'memory_tokens'"):
    models.create("Axial-ViT-B/4-memory", **SMALL)
