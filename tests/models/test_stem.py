"""The hybrids' ResNet: sizes of its map, standardised weights, rematerialisation, bfloat16."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import modules
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.models.convolution import map_size
from vit_jax.models.stem import stem

ENCODER = dict(depth=1, width=32, mlp_dim=64, heads=2, num_classes=5)
SMALL = dict(name="R50x1+ViT-B/16", stages=(1, 1), stem_width=32) | ENCODER
IMAGES = golden.images(32)
ANY_STAGES = st.lists(st.integers(1, 2), max_size=4).map(tuple)


class Stem(nn.Module):
  """The stem by itself."""

  stages: tuple[int, ...]

  @nn.compact
  def __call__(self, x):
    return stem(x, self.stages, 32, jnp.float32, "none")


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), ANY_STAGES)
def test_map_size(height, width, stages):
  init = lambda: Stem(stages).init_with_output(jax.random.key(0), jnp.zeros((2, height, width, 3)))
  out, _ = jax.eval_shape(init)
  channels = 32 * 4 * 2 ** (len(stages) - 1) if stages else 32
  assert out.shape == (2, map_size(height, stages), map_size(width, stages), channels)


@given(st.integers(1, 10**6), ANY_STAGES)
def test_map_size_is_one_division_rounded_up(pixels, stages):
  divisor = 4 * 2 ** max(len(stages) - 1, 0)
  assert map_size(pixels, stages) == -(-pixels // divisor)


@pytest.mark.parametrize(
  ("name", "size", "tokens"),
  [
    ("R50x1+ViT-B/16", (224, 224), 196),
    ("R50x1+ViT-B/16", (65, 49), 5 * 4),
    ("R50x1+ViT-B/32", (65, 49), 3 * 2),
    ("R+ViT-Ti/16", (224, 160), 7 * 5),
    ("R50x1+ViT-B/16p2", (224, 160), 7 * 5),
  ],
)
def test_tokens_of_a_hybrid(name, size, tokens):
  model = models.create(name, depth=1, pool="gap")
  init = lambda: model.init_with_output(jax.random.key(0), jnp.zeros((1, *size, 3)), train=False)
  (_, features), _ = jax.eval_shape(init)
  assert features["patches"].shape == (1, tokens, model.width)
  assert np.prod(model.grid(*size)) == tokens


@pytest.mark.parametrize("name", ["ViT-B/16", "R50x1+ViT-B/16", "R50x1+ViT-B/32", "R+ViT-Ti/16"])
def test_the_grid_of_whole_strides(name):
  model = models.create(name)
  assert model.grid(3 * model.stride(), 7 * model.stride()) == (3, 7)


def test_maps_that_the_patches_do_not_tile_are_refused():
  model = models.create("R+ViT-Ti/16", depth=1)
  with pytest.raises(ValueError, match=r"Maps of 17 x 16 positions.*8 x 8"):
    jax.eval_shape(lambda: model.init(jax.random.key(0), jnp.zeros((1, 65, 64, 3)), train=False))


def test_scale_and_shift_of_every_convolution_are_standardised_away():
  def change(path, leaf):
    convolution = any(getattr(key, "key", "").startswith("conv") for key in path)
    return 5 * leaf + 0.2 if convolution else leaf

  model = models.create(**SMALL)
  params = modules.parameters(model, IMAGES, train=False)
  changed = jax.tree_util.tree_map_with_path(change, params)
  expected, _ = modules.run(model, params, IMAGES)
  actual, _ = modules.run(model, changed, IMAGES)
  np.testing.assert_allclose(actual, expected, atol=2e-3)


@pytest.mark.parametrize("remat", ["dots", "everything"])
def test_remat_changes_neither_outputs_nor_gradients(remat):
  params = modules.parameters(models.create(**SMALL), IMAGES, train=False)
  expected, wanted = modules.logits_and_grads(models.create(**SMALL), params, IMAGES)
  actual, grads = modules.logits_and_grads(models.create(**SMALL, remat=remat), params, IMAGES)
  np.testing.assert_allclose(actual, expected, atol=1e-5)
  modules.assert_close(grads, wanted)


def test_remat_keeps_less():
  params = modules.parameters(models.create(**SMALL), IMAGES, train=False)
  kept = lambda remat: modules.kept(models.create(**SMALL, remat=remat), params, IMAGES)
  assert kept("everything") < kept("dots") < 0.6 * kept("none")


def test_bfloat16_gives_float32_logits_near_those_of_float32():
  params = modules.parameters(models.create(**SMALL), IMAGES, train=False)
  exact, _ = modules.run(models.create(**SMALL), params, IMAGES)
  logits, features = modules.run(models.create(**SMALL, dtype=jnp.bfloat16), params, IMAGES)
  assert logits.dtype == jnp.float32
  assert features["patches"].dtype == features["pre_logits"].dtype == jnp.bfloat16
  assert 1e-6 < np.abs(logits - exact).max() < 0.05 * np.abs(exact).max()


def test_all_convolutions_are_bfloat16_where_it_is_asked_for():
  model = models.create(**SMALL, dtype=jnp.bfloat16)
  params = modules.parameters(model, IMAGES, train=False)
  text = str(jax.make_jaxpr(lambda p: modules.run(model, p, IMAGES))(params))
  types = re.findall(r"(\w+)\[[\d,]+\] = conv_general_dilated", text)
  assert len(types) == 1 + 2 * 4  # the root; in the only unit of each stage three and a projection
  assert set(types) == {"bf16"}
