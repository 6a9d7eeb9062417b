"""Nearest neighbours against brute force in float64, for any division of the work."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.evaluation import features, nearest_neighbours

CLASSES = 5


def brute_force(train, labels, test, neighbours, temperature):
  """The predicted class of each test image, one at a time."""
  predictions = []
  for one in test.astype(np.float64):
    cosine = train.astype(np.float64) @ one
    cosine /= np.linalg.norm(train.astype(np.float64), axis=1) * np.linalg.norm(one)
    votes = np.zeros(CLASSES)
    for row in sorted(range(len(train)), key=lambda row: -cosine[row])[:neighbours]:
      votes[labels[row]] += np.exp(cosine[row] / temperature)
    predictions.append(votes.argmax())
  return np.array(predictions)


def drawn(seed, count=40):
  rng = np.random.default_rng(seed)
  scale = rng.uniform(0.1, 10, (count, 1))  # cosine similarity does not see it
  return (rng.normal(size=(count, 6)) * scale).astype(np.float32), rng.integers(0, CLASSES, count)


@settings(max_examples=12)
@given(
  st.integers(0, 100),
  st.sampled_from([1, 7, 40]),
  st.sampled_from([7, 16, 40]),
  st.sampled_from([8, 30]),
)
def test_against_brute_force(seed, neighbours, train_rows, test_rows):
  (train, labels), (test, wanted) = drawn(seed), drawn(seed + 1000, 30)
  options = dict(neighbours=neighbours, temperature=0.07)
  expected = brute_force(train, labels, test, **options)
  rows = dict(train_rows=train_rows, test_rows=test_rows)
  for target in (wanted, expected):
    result = nearest_neighbours.accuracy(
      (train, labels), (test, target), num_classes=CLASSES, **options, **rows
    )
    assert result == np.mean(expected == target)


def test_a_near_vote_weighs_more_than_two_far_ones():
  train = np.array([[1, 0], [1, 1], [1, 1]], np.float32)
  data = (train, np.array([0, 1, 1])), (np.array([[1, 0.1]], np.float32), np.array([0]))
  result = lambda t: nearest_neighbours.accuracy(*data, num_classes=2, neighbours=3, temperature=t)
  assert result(0.07) == 1.0
  assert result(100.0) == 0.0
  assert result(1e-3) == 1.0  # nothing overflows


def test_equal_similarities_go_by_row():
  train = np.ones((9, 2), np.float32)
  chunks = dict(raise_if_stopped=lambda: None, train_rows=2, test_rows=1)
  values, rows = nearest_neighbours.nearest(train, train[:2], 4, **chunks)
  np.testing.assert_array_equal(rows, [[0, 1, 2, 3]] * 2)
  np.testing.assert_array_equal(values, 2.0)


def test_features_of_nothing_stay_finite():
  assert np.isfinite(features.unit(np.zeros((2, 3), np.float32))).all()
  assert features.unit(np.full((1, 4), 3.0))[0] == pytest.approx(0.5)


def test_stopped_between_comparisons():
  data = drawn(0)
  options = dict(num_classes=CLASSES, neighbours=3, temperature=1.0, train_rows=10, test_rows=20)
  for calls in (0, 1, 7):
    with pytest.raises(StopIteration):
      nearest_neighbours.accuracy(
        data, data, raise_if_stopped=iter(range(calls)).__next__, **options
      )
  nearest_neighbours.accuracy(data, data, raise_if_stopped=iter(range(8)).__next__, **options)
