"""BiT ResNets and axial ResNets: sizes, root, standardised weights, attention, remat, bfloat16."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import modules, reference
from tests.golden import weights as golden
from vit_jax import models
from vit_jax.models.backbone import AxialAttention, Backbone

SMALL = dict(name="R50x1", stages=(1, 1, 1, 1), width=32, num_classes=5)
IMAGES = golden.images(32)
BOTH = pytest.mark.parametrize(
  "options", [{}, dict(name="Axial-R50", stages=(1, 1))], ids=["plain", "axial"]
)
windows = np.lib.stride_tricks.sliding_window_view


def start(**options):
  return modules.parameters(models.create(**SMALL | options), IMAGES, train=False)


def run(params, images=IMAGES, **options):
  return modules.run(models.create(**SMALL | options), params, images)


@settings(max_examples=15)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 4), st.sampled_from([0, 4]))
def test_each_halving_rounds_up(height, width, stages, heads):
  backbone = Backbone((1,) * (stages - 1) + (2,), 32, heads, jnp.float32, "xla", "none")
  images = jnp.zeros((1, height, width, 3))
  out, _ = jax.eval_shape(lambda: backbone.init_with_output(jax.random.key(0), images))
  divisor = 2 * 2**stages
  assert out.shape == (1, -(-height // divisor), -(-width // divisor), 64 * 2**stages)


def test_features():
  images = np.zeros((2, 65, 49, 3), np.float32)
  params = start()
  logits, features = run(params, images)
  assert features["patches"].shape == (2, 3 * 2, 1024)
  np.testing.assert_allclose(features["pre_logits"], features["patches"].mean(axis=1), atol=1e-5)
  expected = features["pre_logits"] @ params["head"]["kernel"] + params["head"]["bias"]
  np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_the_root_pads_with_zeros_before_the_maximum():
  """If all values in a window are negative, the padding is the maximum."""
  images = golden.images(9)
  params = start(stages=())
  root, norm = params["resnet"]["root_block"], params["resnet"]["group_norm"]
  kernel = root["standardized_conv2d"]["kernel"].astype(float)
  kernel = (kernel - kernel.mean(axis=(0, 1, 2))) / kernel.std(axis=(0, 1, 2))

  def pad(x, pixels, value=0.0):
    border = (pixels, pixels)
    return np.pad(x, ((0, 0), border, border, (0, 0)), constant_values=value)

  patches = windows(pad(images.astype(float), 3), (7, 7), axis=(1, 2))[:, ::2, ::2]
  x = np.einsum("bhwcij,ijco->bhwo", patches, kernel)

  def map_padded_with(value):
    pooled = windows(pad(x, 1, value), (3, 3), axis=(1, 2))[:, ::2, ::2].max(axis=(-2, -1))
    pooled = reference.group_norm(norm, pooled, 1e-5)
    return np.maximum(pooled, 0).reshape(2, 9, 32)

  _, features = run(params, images, stages=())
  np.testing.assert_allclose(features["patches"], map_padded_with(0.0), atol=1e-4)
  assert np.abs(map_padded_with(-np.inf) - map_padded_with(0.0)).max() > 0.1


@pytest.mark.parametrize("stride", [1, 2])
def test_axial_attention(stride):
  """Rows, then columns, then a mean over stride x stride; at odd edges over fewer values."""
  module = AxialAttention(heads=2, stride=stride, dtype=jnp.float32, attention="xla")
  x = np.random.default_rng(0).standard_normal((2, 3, 5, 32)).astype(np.float32)
  params = modules.parameters(module, x)
  assert params["row_attention"]["pos_embedding_relative"].shape == (2 * 5 - 1, 2, 16)
  assert params["column_attention"]["pos_embedding_relative"].shape == (2 * 3 - 1, 2, 16)
  wide = jax.tree.map(np.float64, params)
  y = np.maximum(reference.group_norm(wide["group_norm"], x.astype(float), 1e-5), 0)
  for row in range(3):
    y[:, row] = reference.attention(wide["row_attention"], y[:, row])
  for column in range(5):
    y[:, :, column] = reference.attention(wide["column_attention"], y[:, :, column])
  expected = np.zeros((2, -(-3 // stride), -(-5 // stride), 32))
  for i, j in np.ndindex(expected.shape[1:3]):
    cell = y[:, i * stride : (i + 1) * stride, j * stride : (j + 1) * stride]
    expected[:, i, j] = cell.mean(axis=(1, 2))
  np.testing.assert_allclose(jax.jit(module.apply)({"params": params}, x), expected, atol=1e-5)


def test_axial_units_have_attention_in_place_of_the_3_by_3_convolution():
  plain, axial = (start(name=name)["resnet"] for name in ("R50x1", "Axial-R50"))
  assert plain.keys() == axial.keys()
  for stage in ("block1", "block2", "block3", "block4"):
    unit, other = plain[stage]["unit01"], axial[stage]["unit01"]
    assert jax.tree.map(np.shape, unit["a"]) == jax.tree.map(np.shape, other["a"])
    assert jax.tree.map(np.shape, unit["c"]) == jax.tree.map(np.shape, other["c"])
    assert unit["b"].keys() == {"group_norm", "standardized_conv2d"}
    assert other["b"].keys() == {"group_norm", "row_attention", "column_attention"}
