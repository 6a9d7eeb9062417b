"""The linear probe against a plain solution of the normal equations, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import config as c
from vit_jax.data.batches import prefetch_to_device
from vit_jax.devices import mesh
from vit_jax.evaluation import few_shot


def reference(features, labels, classes, test):
  """Scores (M, K) of test features."""
  x = features.astype(np.float64)
  mean, deviation = x.mean(0), np.sqrt(((x - x.mean(0)) ** 2).mean(0)) + 1e-5
  extend = lambda z: np.hstack([(z - mean) / deviation, np.full((len(z), 1), 100.0)])
  a, y = extend(x), -np.ones((len(x), classes))
  y[np.arange(len(x)), labels] = 1
  w = np.linalg.solve(a.T @ a + 1024.0 * np.eye(a.shape[1]), a.T @ y)
  return w, extend(test.astype(np.float64)) @ w


def drawn(seed, count, size, classes):
  rng = np.random.default_rng(seed)
  labels = rng.integers(0, classes, count)
  centres = np.random.default_rng(9).normal(0, 2, (classes, size))
  return (rng.normal(size=(count, size)) + centres[labels]).astype(np.float32), labels


@pytest.mark.parametrize(("count", "size"), [(12, 60), (200, 31), (31, 30), (30, 30), (1, 5)])
def test_both_ways_solve_the_normal_equations(count, size):
  features, labels = drawn(0, count, size, 4)
  features[:, 0] = 3.0  # a dead feature
  expected, _ = reference(features, labels, 4, features)
  probe = few_shot.fit(features, labels, 4)
  assert probe.weights.dtype == np.float64
  np.testing.assert_allclose(probe.weights, expected, rtol=1e-6, atol=1e-9)


class Pixels:
  """A model whose features are its pixels."""

  dtype = jnp.float32

  def apply(self, _, images, *, train, method):
    assert (train, method) == (False, "features")
    return {"pre_logits": images.reshape(len(images), -1)}


def test_accuracy_on_several_devices_with_padding():
  """The accuracy of four probes at once is that of the float64 scores of each."""
  rng = np.random.default_rng(3)
  images = rng.integers(0, 256, (50, 2, 2, 3)).astype(np.uint8)
  labels = rng.integers(0, 5, 50)
  seen = ((images.reshape(50, -1).astype(np.float32) - 127.5) / 127.5).astype(np.float32)
  test_images, test_labels = images[20:], labels[20:]
  draws = [rng.choice(20, 8, replace=False) for _ in range(4)]
  probes = [few_shot.fit(seen[rows], labels[rows], 5) for rows in draws]
  expected = [
    np.mean(reference(seen[rows], labels[rows], 5, seen[20:])[1].argmax(1) == test_labels)
    for rows in draws
  ]
  devices = mesh.make(c.Mesh(), batch_size=16, accumulation=1)
  batches = []
  for begin in (0, 16):
    part = slice(begin, begin + 16)
    count = len(test_labels[part])
    batch = dict(
      image=np.zeros((16, 2, 2, 3), np.uint8),
      labels=np.zeros(16, np.int32),
      mask=(np.arange(16) < count).astype(np.float32),
    )
    batch["image"][:count], batch["labels"][:count] = test_images[part], test_labels[part]
    batches.append(batch)
  step = jax.jit(few_shot.make_step(Pixels(), "pre_logits"), out_shardings=mesh.replicated(devices))
  arrays = few_shot.stack(probes)
  assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
  on_devices = mesh.replicate(devices, arrays)
  placed = list(prefetch_to_device(batches, mesh.batch_sharding(devices), ahead=1))
  result = few_shot.accuracies(step, {}, on_devices, placed)
  np.testing.assert_allclose(result, expected, atol=1e-12)
  assert len({*expected}) > 1


def test_metrics_are_means_and_deviations_over_seeds():
  result = few_shot.metrics_of((1, 5), np.array([[0.1, 0.3], [0.5, 0.5]]))
  assert result == pytest.approx({"1shot": 0.2, "1shot_std": 0.1, "5shot": 0.5, "5shot_std": 0.0})
