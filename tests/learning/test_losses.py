"""Losses against NumPy in float64."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.config import Loss
from vit_jax.learning import losses


def draw(seed, k=7):
  rng = np.random.default_rng(seed)
  return rng.normal(0, 5, (4, k)), (rng.random((4, k)) < 0.4).astype(float)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 1.0]))
def test_softmax(seed, smoothing):
  logits, target = draw(seed)
  target[:, 0] = 1  # at least one label each
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  share = target / target.sum(-1, keepdims=True)
  share = (1 - smoothing) * share + smoothing / 7
  expected = -(share * log_p).sum(-1)
  loss = losses.LOSSES["softmax"]
  actual = loss(jnp.asarray(logits), jnp.asarray(target), label_smoothing=smoothing)
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.1, 1.0]))
def test_sigmoid(seed, smoothing):
  logits, target = draw(seed)
  t = (1 - smoothing) * target + smoothing / 2
  expected = (t * np.log1p(np.exp(-logits)) + (1 - t) * np.log1p(np.exp(logits))).sum(-1)
  loss = losses.LOSSES["sigmoid"]
  actual = loss(jnp.asarray(logits), jnp.asarray(target), label_smoothing=smoothing)
  np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_the_mean_over_classes_of_one_label_each():
  """As torch's BCEWithLogitsLoss(reduction="none") and .mean(-1)."""
  logits, _ = draw(0)
  target = np.eye(7)[[2, 0, 6, 2]]
  expected = -(target * np.log(1 / (1 + np.exp(-logits))))
  expected = (expected - (1 - target) * np.log(1 - 1 / (1 + np.exp(-logits)))).mean(-1)
  loss = losses.of(Loss(kind="sigmoid", over_classes="mean"))
  np.testing.assert_allclose(loss(logits, target), expected, rtol=1e-5)


@pytest.mark.parametrize("loss", losses.LOSSES.values())
def test_huge_logits_stay_finite_and_low_precision_is_widened(loss):
  logits = jnp.array([[1e4, -1e4, 0.0]], jnp.bfloat16)
  value = loss(logits, jnp.array([[0.0, 1.0, 0.0]]), label_smoothing=0.0)
  assert value.dtype == jnp.float32
  assert np.isfinite(value).all()
  assert value[0] > 9000


def test_an_image_without_labels_has_no_softmax_loss():
  value = losses.softmax(jnp.ones((1, 3)), jnp.zeros((1, 3)), label_smoothing=0.0)
  assert value[0] == 0


def test_targets_from_class_numbers_and_from_indicators():
  expected = [[0, 1, 0], [0, 0, 1]]
  np.testing.assert_array_equal(losses.targets(jnp.array([1, 2]), 3), expected)
  np.testing.assert_array_equal(losses.targets(jnp.array(expected, jnp.uint8), 3), expected)


def test_initial_sigmoid_loss_with_head_bias_minus_ten_is_small():
  target = losses.targets(jnp.array([3]), 18_291)
  value = losses.sigmoid(jnp.full((1, 18_291), -10.0), target, label_smoothing=0.0)
  np.testing.assert_allclose(value, 10 + 18_291 * np.log1p(np.exp(-10)), rtol=1e-4)
