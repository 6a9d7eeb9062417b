"""The hybrids' ResNet: sizes of its map, standardised weights, rematerialisation, bfloat16."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden import weights as golden
from vit_jax import models
from vit_jax.models.convolution import map_size
from vit_jax.models.stem import NORMS, stem

ENCODER = dict(depth=1, width=32, mlp_dim=64, heads=2, num_classes=5)
SMALL = dict(name="R50x1+ViT-B/16", stages=(1, 1), stem_width=32) | ENCODER
IMAGES = golden.images(32)
ANY_STAGES = st.lists(st.integers(1, 2), max_size=4).map(tuple)


class Stem(nn.Module):
  """The stem by itself."""

  stages: tuple[int, ...]

  @nn.compact
  def __call__(self, x):
    options = dict(norms=NORMS["published"], dtype=jnp.float32, policy="none")
    return stem(x, self.stages, 32, **options)


@settings(max_examples=15)
@given(st.integers(1, 400), st.integers(1, 400), ANY_STAGES)
def test_map_size(height, width, stages):
  init = lambda: Stem(stages).init_with_output(jax.random.key(0), jnp.zeros((2, height, width, 3)))
  out, _ = jax.eval_shape(init)
  channels = 32 * 4 * 2 ** (len(stages) - 1) if stages else 32
  assert out.shape == (2, map_size(height, stages), map_size(width, stages), channels)


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
