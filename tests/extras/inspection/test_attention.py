"""Attention weights against golden values, NumPy in float64, and the properties of a softmax."""

import functools
import operator

import jax
import numpy as np
import pytest

from tests import modules, reference
from tests.extras.inspection.miniatures import IMAGES, model
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.extras import inspection
from vit_jax.extras.inspection import attention
from vit_jax.models.stacking import stack_blocks
from vit_jax.storage.tree import nest


@functools.cache
def weights_of(family):
  return list(inspection.attention_weights(*model(family), IMAGES))


def tokens_of(module, params, images=IMAGES):
  """The tokens before the first block, float64."""
  grid = module.grid(*images.shape[1:3])

  def embedded(module):
    return module.add_positions(module.embed(images), grid, train=False)

  run = lambda: module.apply({"params": params}, method=embedded)
  with jax.default_matmul_precision("highest"):
    return np.asarray(jax.jit(run)(), np.float64)


def expected(params, x):
  """Attention weights of a block in NumPy: (B, heads, N, N)."""
  own = params["MultiHeadDotProductAttention_1"]
  x = reference.layer_norm(params["LayerNorm_0"], x)
  query, key = (
    np.einsum("bnd,dhe->bhne", x, own[name]["kernel"]) + own[name]["bias"][:, None]
    for name in ("query", "key")
  )
  tokens = x.shape[1]
  keys = np.repeat(key[:, :, None], tokens, axis=2)
  if "pos_embedding_relative" in own:
    offsets = tokens - 1 + np.arange(tokens) - np.arange(tokens)[:, None]
    keys = keys + np.moveaxis(own["pos_embedding_relative"][offsets], 2, 0)
  logits = np.einsum("bhqe,bhqke->bhqk", query, keys) / np.sqrt(query.shape[-1])
  return reference.softmax(logits)


def test_golden():
  record, wanted = golden.golden("vit"), golden.golden("inspection")["attention"]
  params = nest(golden.make(record["shapes"]))
  layers = inspection.attention_weights(models.module_of(params), params, golden.images(32))
  np.testing.assert_allclose([layer[0] for layer in layers], wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", ["gap", "hybrid", "relative"])
def test_every_layer_in_numpy(family):
  """Every kind of token and of logit, block after block."""
  module, single = model(family)
  params = jax.tree.map(np.float64, single)
  x = tokens_of(module, single)
  for i, layer in enumerate(weights_of(family)):
    block = params["Transformer"][f"encoderblock_{i}"]
    np.testing.assert_allclose(layer, expected(block, x), atol=2e-6)
    x = reference.encoder_block(block, x)


def test_an_axial_model_in_numpy():
  params = jax.tree.map(np.float64, model("axial")[1])
  x = tokens_of(*model("axial"))
  rows, columns = weights_of("axial")[:2]
  assert rows.shape == columns.shape == (2, 4, 2, 4, 4)
  block = params["Transformer"]["encoderblock_0"]
  lines = x.reshape(2, 4, 4, -1)
  np.testing.assert_allclose(rows[:, 1], expected(block["row"], lines[:, 1]), atol=2e-6)
  lines = np.stack([reference.encoder_block(block["row"], lines[:, i]) for i in range(4)], axis=1)
  np.testing.assert_allclose(columns[:, 3], expected(block["column"], lines[:, :, 3]), atol=2e-6)


def test_the_pooling_of_map_in_numpy():
  module, params = model("map")
  pooling = attention.look(
    module, attention.on_device(params), IMAGES, operator.attrgetter("pooling")
  )
  found = np.asarray(pooling)
  x = tokens_of(module, params)
  params = jax.tree.map(np.float64, params)
  for i in range(module.depth):
    x = reference.encoder_block(params["Transformer"][f"encoderblock_{i}"], x)
  x = reference.layer_norm(params["Transformer"]["encoder_norm"], x)
  own = params["MAPHead_0"]["MultiHeadDotProductAttention_0"]
  project = lambda x, name: np.einsum("...d,dhe->...he", x, own[name]["kernel"]) + own[name]["bias"]
  query, key = project(params["MAPHead_0"]["probe"][0, 0], "query"), project(x, "key")
  logits = np.einsum("he,bnhe->bhn", query, key) / np.sqrt(query.shape[-1])
  np.testing.assert_allclose(found[:, :, 0], reference.softmax(logits), atol=2e-6)


def test_stacked_blocks_are_the_same_model():
  module, params = model("gap")
  stacked = module.clone(scan=True), stack_blocks(params)
  found = list(inspection.attention_weights(*stacked, IMAGES))
  np.testing.assert_array_equal(found, weights_of("gap"))


def test_pixels_and_floats_are_the_same_images():
  module, params = model("gap")
  pixels = np.random.default_rng(0).integers(0, 256, IMAGES.shape, np.uint8)
  floats = (pixels.astype(np.float32) - 127.5) / 127.5
  found = [list(inspection.attention_weights(module, params, x)) for x in (pixels, floats)]
  np.testing.assert_allclose(*found, atol=1e-6)


@pytest.mark.parametrize(
  ("images", "message"),
  [
    (np.zeros((2, 16, 16, 1), np.float32), r"\(2, 16, 16, 1\).*must be"),
    (np.zeros((0, 16, 16, 3), np.float32), "B at least 1"),
    (np.full((1, 16, 16, 3), 255.0), "from 255.0 to 255.0"),
    (np.full((1, 16, 16, 3), np.nan), "from nan"),
    (np.zeros((1, 16, 16, 3), np.int64), "int64"),
    (np.zeros((1, 18, 16, 3), np.float32), "cannot be cut into patches"),
  ],
)
def test_wrong_images(images, message):
  with pytest.raises(ValueError, match=message):
    list(inspection.attention_weights(*model("gap"), images))


def test_images_of_another_size_than_the_parameters():
  module, params = model("vit")
  wide = np.zeros((1, 16, 32, 3), np.uint8)
  message = r"not suit images of 16 x 32 pixels; take .* model\.at_size\(\(16, 32\)\)"
  for ask in (inspection.rollout, inspection.patch_features):
    with pytest.raises(ValueError, match=message):
      ask(module, params, wide)


def test_what_has_no_attention():
  plain, of_plain = model("gap")
  others = (plain.clone(depth=0), {}), (plain.clone(parallel_branches=2), of_plain)
  for module, params in (model("bit"), *others):
    with pytest.raises(ValueError, match=r"of a ResNet|no blocks|several attentions side by side"):
      inspection.mean_distances(module, params, IMAGES)


def test_as_much_attention_as_is_held():
  """The weights of a layer are 4 bytes for each head and pair of tokens, the class token too."""
  module, _ = model("vit")
  attention.check(module, (4 * 64, 4 * 181))  # 4 * 2 * 11,585**2 bytes, just less than 1 GiB
  with pytest.raises(ValueError, match=r"35 x 331 patches.*would take.*the most is 1 GiB"):
    attention.check(module, (4 * 35, 4 * 331))


def test_equal_requests_share_a_program():
  module, params = model("vit")
  for _ in range(3):
    inspection.rollout(module, params, IMAGES)
    inspection.raw(module, params, IMAGES, layer=0, head=1)
    inspection.mean_distances(module, params, IMAGES)
    made = attention._run._cache_size()
  assert made == attention._run._cache_size()
  inspection.raw(module, params, IMAGES, layer=1, head=1)
  assert attention._run._cache_size() == made + 1


def test_more_images_than_are_held_at_once(monkeypatch):
  module, params = model("vit")
  monkeypatch.setattr(attention, "MAX_OF_ALL", 2 * module.depth * 4 * module.heads * 17**2)
  assert len(list(inspection.attention_weights(module, params, IMAGES))) == module.depth
  with pytest.raises(ValueError, match=r"attention of 4 images would take .* fewer at a time"):
    next(inspection.attention_weights(module, params, np.concatenate([IMAGES, IMAGES])))


def test_attention_that_hands_out_nothing(monkeypatch):
  module, params = model("vit")
  monkeypatch.setattr(models.attention, "hand_out", lambda *_: None)
  silent = module.clone(name="silent")
  with pytest.raises(ValueError, match=r"an attention of ViT hands out no weights .*`vit_jax\.mod"):
    inspection.rollout(silent, params, IMAGES)


def test_padding_behind_the_tokens_is_not_handed_out():
  """As for cuDNN, whose numbers of tokens are even."""
  module = models.attention.Attention(heads=2, dtype=np.float32, relative=True, count=5)
  x = np.random.default_rng(0).normal(size=(2, 6, 8)).astype(np.float32)
  params = modules.parameters(module, x)
  apply = jax.jit(functools.partial(module.apply, mutable=["intermediates"]))
  seen = []
  for tokens in (x, x[:, :5]):
    _, kept = apply({"params": params}, tokens)
    seen.append(kept["intermediates"][models.attention.HANDED_OUT][0])
  assert seen[0].shape == (2, 2, 5, 5)
  np.testing.assert_allclose(*seen, atol=1e-6)
  np.testing.assert_allclose(np.sum(seen[0], axis=-1), 1, atol=1e-6)
