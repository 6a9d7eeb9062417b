"""The linear probe against a plain solution of the normal equations, in float64.

test_evaluate.py has the accuracies on several devices.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.evaluation import few_shot


def reference(features, labels, classes):
  """Mean and deviation of the features, and the weights of the probe."""
  x, count = features.astype(np.float64), len(features)
  mean, deviation = x.mean(0), np.sqrt(((x - x.mean(0)) ** 2).mean(0)) + 1e-5
  a, y = extended(x, mean, deviation), -np.ones((count, classes))
  y[np.arange(count), labels] = 1
  return mean, deviation, np.linalg.solve(a.T @ a + 1024.0 * np.eye(a.shape[1]), a.T @ y)


def extended(x, mean, deviation):
  return np.hstack([(x - mean) / deviation, np.full((len(x), 1), 100.0)])


def drawn(seed, count, size, classes):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, count)
  centres = np.random.default_rng(9).normal(0, 2, (classes, size))
  return (rng.normal(size=(count, size)) + centres[labels]).astype(np.float32), labels


@pytest.mark.parametrize(("count", "size"), [(12, 60), (200, 31), (31, 30), (30, 30), (1, 5)])
def test_both_ways_solve_the_normal_equations(count, size):
  features, labels = drawn(0, count, size, 4)
  features[:, 0] = 3.0  # a dead feature
  probe = few_shot.fit(features, labels, 4)
  assert probe.weights.dtype == np.float64
  expected = reference(features, labels, 4)[-1]
  np.testing.assert_allclose(probe.weights, expected, rtol=1e-6, atol=1e-9)


class Pixels:
  """A model whose features are its pixels."""

  dtype = jnp.float32

  def apply(self, _, images, *, train, method):
    assert (train, method) == (False, "features")
    return {"pre_logits": images.reshape(len(images), -1)}


def test_each_of_several_probes_has_its_own_accuracy():
  rng = np.random.default_rng(3)
  images = rng.integers(0, 256, (50, 2, 2, 3)).astype(np.uint8)
  labels, mask = rng.integers(0, 5, 50), np.float32(np.arange(50) >= 20)
  seen = (images.reshape(50, -1).astype(np.float32) - 127.5) / 127.5
  draws, expected = [rng.choice(20, 8, replace=False) for _ in range(4)], []
  for rows in draws:
    mean, deviation, weights = reference(seen[rows], labels[rows], 5)
    scores = extended(seen[20:], mean, deviation) @ weights
    expected.append(np.mean(scores.argmax(1) == labels[20:]))
  probes = few_shot.stack([few_shot.fit(seen[rows], labels[rows], 5) for rows in draws])
  assert {array.dtype for array in probes.values()} == {np.dtype(np.float32)}
  step = jax.jit(few_shot.make_step(Pixels(), "pre_logits"))
  result = few_shot.accuracies(step, {}, probes, [dict(image=images, labels=labels, mask=mask)])
  np.testing.assert_allclose(result, expected, atol=1e-12)
  assert len({*expected}) > 1


def test_metrics_are_means_and_deviations_over_seeds():
  result = few_shot.metrics_of((1, 5), np.array([[0.1, 0.3], [0.5, 0.5]]))
  assert result == pytest.approx({"1shot": 0.2, "1shot_std": 0.1, "5shot": 0.5, "5shot_std": 0.0})


def test_one_draw_has_no_deviation():
  result = few_shot.metrics_of((1, 5), np.array([[0.25], [0.5]]))
  assert result == {"1shot": 0.25, "5shot": 0.5}
  assert few_shot.FewShot.in_words("5shot", result) == "5-shot 50.00%"
