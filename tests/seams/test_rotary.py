"""A family whose blocks turn queries and keys (RoPE) and gate their MLP (SwiGLU) is this file.

The blocks hand out their attention weights, so pictures of attention are theirs. Weights that were
computed from the outputs of `query` and `key` would be wrong, because these are turned afterwards.
"""

import csv
import json

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from tests import modules, reference
from tests.models.test_flops import counted
from tests.seams import program
from vit_jax import inference, models, registry
from vit_jax.data.images import evaluate_image
from vit_jax.extras import inspection
from vit_jax.extras.commands import export, visualize
from vit_jax.models import vit as vits
from vit_jax.models.attention import Projection, attend, hand_out
from vit_jax.models.family import Family
from vit_jax.models.layers import LayerNorm, split_by_example
from vit_jax.models.vit import ViT

pytestmark = pytest.mark.usefixtures("one_device")
BASE = 100.0


def angles(grid, before, dim):
  """(N, dim / 2): of the row, then of the column of each token; 0 before the patches."""
  rows, columns = np.indices(grid).reshape(2, -1)
  rates = BASE ** -(np.arange(dim // 4) / (dim // 4))
  found = np.concatenate([rows[:, None] * rates, columns[:, None] * rates], axis=1)
  return np.concatenate([np.zeros((before, dim // 2)), found])


def turned(x, by):
  """(B, N, heads, dim), each pair of channels turned by its angle, (N, dim / 2)."""
  cos, sin = np.cos(by)[:, None], np.sin(by)[:, None]
  cos, sin = cos.astype(x.dtype), sin.astype(x.dtype)
  one, two = x[..., ::2], x[..., 1::2]
  module = jnp if isinstance(x, jax.Array) else np
  pairs = [one * cos - two * sin, one * sin + two * cos]
  return module.stack(pairs, axis=-1).reshape(x.shape)


class Attention(nn.Module):
  """Attention whose logits depend on where two patches lie to each other."""

  heads: int
  dtype: jnp.dtype
  by: np.ndarray

  @nn.compact
  def __call__(self, x):
    project = lambda name: Projection(self.heads, self.dtype, flat=False, name=name)(x)
    query, key, value = (project(name) for name in ("query", "key", "value"))
    query, key = turned(query, self.by), turned(key, self.by)
    hand_out(self, query, key)
    y = attend(query, key, value, None)
    return nn.DenseGeneral(x.shape[-1], axis=(-2, -1), dtype=self.dtype, name="out")(y)


class SwiGLU(nn.Module):
  """silu(x W) * x V, and one more dense layer."""

  mlp_dim: int
  dtype: jnp.dtype

  @nn.compact
  def __call__(self, x):
    dense = lambda size, name: nn.Dense(size, dtype=self.dtype, name=name)
    hidden = nn.silu(dense(self.mlp_dim, "gate")(x)) * dense(self.mlp_dim, "Dense_0")(x)
    return dense(x.shape[-1], "Dense_1")(hidden)


class Block(nn.Module):
  """Pre-norm, as the ViT's."""

  heads: int
  mlp_dim: int
  dtype: jnp.dtype
  by: np.ndarray

  @nn.compact
  def __call__(self, x):
    norm = lambda number: LayerNorm(self.dtype, name=f"LayerNorm_{number}")
    attention = Attention(self.heads, self.dtype, self.by, name="MultiHeadDotProductAttention_1")
    x = split_by_example(x)
    x = x + attention(norm(0)(x))
    return x + SwiGLU(self.mlp_dim, self.dtype, name="MlpBlock_3")(norm(2)(x))


class Encoder(nn.Module):
  """The blocks; no positions are added."""

  model: ViT
  grid: tuple[int, int]

  def add_positions(self, x, *, train):
    del train
    return x

  @nn.compact
  def __call__(self, x, *, train):
    del train
    m = self.model
    by = angles(self.grid, m.tokens_before(), m.width // m.heads)
    for i in range(m.depth):
      x = Block(m.heads, m.mlp_dim, m.dtype, by, name=f"encoderblock_{i}")(x)
    return LayerNorm(m.dtype, name="encoder_norm")(x)


class Rotary(ViT):
  """A ViT with other blocks."""

  sharding = ((r".*/gate/(kernel|bias)", ("model",)), *ViT.sharding)

  @nn.nowrap
  def _encoder(self, grid):
    return Encoder(self.clone(parent=None), grid, name="Transformer")

  @nn.nowrap
  def encoder_macs(self, height, width):
    tokens = self.tokens_before() + np.prod(self.grid(height, width)).item()
    gates = self.depth * tokens * self.width * self.mlp_dim
    return super().encoder_macs(height, width) + gates


def fields(name):
  vit, beginning = name.removeprefix("Rotary-"), name.startswith("Rotary-")
  found = vits.fields_of_name(vit) if beginning else None
  return found and found | dict(positions="none")


def recognise(params):
  block = params["Transformer"]["encoderblock_0"]
  return vits.recognise(params) if "gate" in block["MlpBlock_3"] else None


ROTARY = Family(
  module=Rotary,
  names=("Rotary-ViT-B/16",),
  fields=fields,
  recognise=recognise,
  alike=lambda module: [f"Rotary-{name}" for name in vits.alike(module)],
)
WORDS = (
  "--config.model.name=Rotary-ViT-B/4",
  "--config.model.width=32",
  "--config.duration.epochs=0",
  "--config.duration.steps=4",
)
SMALL = dict(depth=2, width=32, mlp_dim=48, heads=2, num_classes=5)
IMAGES = np.random.default_rng(0).uniform(-1, 1, (2, 12, 16, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def line(monkeypatch):
  monkeypatch.setitem(registry.FAMILIES, "rotary", "tests.seams.test_rotary:ROTARY")


def in_numpy(module, params, images):
  """The attention weights of each layer, and the logits, in float64."""
  params = jax.tree.map(np.float64, params)
  (rows, columns), patch = module.grid(*images.shape[1:3]), module.patch
  cut = images.astype(float).reshape(len(images), rows, patch, columns, patch, 3).swapaxes(2, 3)
  embedding = params["embedding"]
  x = cut.reshape(len(images), rows * columns, -1) @ embedding["kernel"].reshape(-1, module.width)
  x = np.concatenate([np.repeat(params["cls"], len(x), axis=0), x + embedding["bias"]], axis=1)
  dim, layers = module.width // module.heads, []
  for i in range(module.depth):
    block = params["Transformer"][f"encoderblock_{i}"]
    own = block["MultiHeadDotProductAttention_1"]
    y = reference.layer_norm(block["LayerNorm_0"], x)
    query, key, value = (
      np.einsum("bnd,dhe->bnhe", y, own[name]["kernel"]) + own[name]["bias"]
      for name in ("query", "key", "value")
    )
    by = angles((rows, columns), 1, dim)
    query, key = turned(query, by), turned(key, by)
    logits = np.einsum("bqhe,bkhe->bhqk", query, key) / np.sqrt(dim)
    layers.append(reference.softmax(logits))
    y = np.einsum("bhqk,bkhe->bqhe", layers[-1], value)
    x = x + np.einsum("bnhe,hed->bnd", y, own["out"]["kernel"]) + own["out"]["bias"]
    mlp, y = block["MlpBlock_3"], reference.layer_norm(block["LayerNorm_2"], x)
    gate = reference.dense(mlp["gate"], y)
    hidden = gate / (1 + np.exp(-gate)) * reference.dense(mlp["Dense_0"], y)
    x = x + reference.dense(mlp["Dense_1"], hidden)
  x = reference.layer_norm(params["Transformer"]["encoder_norm"], x)
  return layers, reference.dense(params["head"], x[:, 0])


def rolled(layers):
  """Attention Rollout of the class token."""
  product = np.eye(layers[0].shape[-1])
  for layer in layers:
    product = (np.eye(len(product[-1])) + layer.mean(axis=1)) / 2 @ product
  return product[:, 0, 1:]


def test_outputs_weights_and_maps_are_those_of_the_formulas():
  module = models.create("Rotary-ViT-B/4", **SMALL)
  params = modules.parameters(module, IMAGES, train=False)
  layers, logits = in_numpy(module, params, IMAGES)
  np.testing.assert_allclose(modules.run(module, params, IMAGES)[0], logits, atol=2e-5)
  found = list(inspection.attention_weights(module, params, IMAGES))
  np.testing.assert_allclose(found, layers, atol=2e-6)
  maps, _ = inspection.rollout(module, params, IMAGES)
  np.testing.assert_allclose(maps.reshape(2, -1), rolled(layers), atol=1e-6)


def test_visualize_attention_shows_its_attention(tmp_path, capsys):
  """From files to files: an exported run, a picture, and the maps that the tool writes."""
  path, out, weights = tmp_path / "photo.png", tmp_path / "out", tmp_path / "weights.npz"
  pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
  Image.fromarray(pixels).save(path)
  assert program.run(tmp_path / "run", *WORDS, "--config.model.depth=2")
  export.main(["--source", str(tmp_path / "run"), "--output", str(weights), "--verify"])
  model = inference.load(weights)
  assert type(model.module) is Rotary
  chex.assert_trees_all_equal(model.params, inference.load(tmp_path / "run").params)
  capsys.readouterr()
  words = ("attention", "--source", weights, "--images", path, "--output", out, "--format", "json")
  visualize.main([str(word) for word in words])
  assert json.loads(capsys.readouterr().out)["summary"]["images"] == 1
  seen = evaluate_image(pixels, max_pixels=10**6, **model.card.preparation())
  layers, _ = in_numpy(model.module, model.params, seen[None] / 127.5 - 1)
  maps = np.load(out / "attention.npz")["maps"]
  np.testing.assert_allclose(maps.reshape(1, -1), rolled(layers), atol=1e-6)
  assert (out / "attention.png").exists()
  with (out / "attention.csv").open() as file:
    assert len(list(csv.reader(file))) == 2


def test_its_cost_is_counted():
  module = models.create("Rotary-ViT-B/4", **SMALL)
  params = modules.parameters(module, IMAGES, train=False)
  forward = lambda p, x: module.apply({"params": p}, x, train=False)[0]
  jaxpr = jax.make_jaxpr(forward)(params, jnp.zeros((1, 12, 16, 3))).jaxpr
  assert 2 * module.macs(12, 16) == pytest.approx(counted(jaxpr), rel=1e-6)
