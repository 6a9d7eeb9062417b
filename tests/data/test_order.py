"""The stream of a run: each epoch has its own order; orders of earlier releases are unchanged."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.data import order

SAMPLINGS = ["uniform", "grain"]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@settings(max_examples=10, deadline=None)
@given(length=st.integers(1, 12), begin=st.integers(0, 30), size=st.integers(1, 20))
def test_every_epoch_has_every_example_once_however_it_is_cut(sampling, length, begin, size):
  rows = pickle.loads(pickle.dumps(order.epochs(length, seed=3, sampling=sampling)))
  whole = rows(range(5 * length))
  for epoch in range(5):
    assert sorted(whole[epoch * length : (epoch + 1) * length]) == list(range(length))
  part = rows(range(begin, begin + size))
  assert part == [rows(range(at, at + 1))[0] for at in range(begin, begin + size)]
  assert all(type(row) is int for row in part)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_epochs_and_seeds_differ(sampling):
  first, other = (order.epochs(50, seed=s, sampling=sampling)(range(150)) for s in (0, 1))
  parts = [rows[at : at + 50] for rows in (first, other) for at in (0, 50, 100)]
  assert len({tuple(part) for part in parts}) == 6


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_numbers_are_found_again(sampling):
  drawn = order.fixed(99, seed=1, sampling=sampling)
  numbers = np.array([drawn[position] for position in (0, 98, 7)])
  assert drawn.find(numbers).tolist() == [0, 98, 7]


def test_runs_of_earlier_releases_keep_their_order():
  """The orders of release 0.1.0, by Grain, and of this release must not change."""
  rows = order.epochs(10, seed=7, sampling="grain")(range(20))
  assert rows == [7, 9, 0, 8, 4, 2, 5, 6, 3, 1, 6, 0, 4, 2, 7, 9, 1, 5, 8, 3]
  rows = order.epochs(10, seed=7, sampling="uniform")(range(20))
  assert rows == [6, 0, 2, 3, 4, 7, 9, 5, 8, 1, 2, 6, 9, 8, 1, 7, 4, 5, 3, 0]
  grain, uniform = (order.fixed(10, seed=7, sampling=sampling) for sampling in ("grain", "uniform"))
  assert [grain[i] for i in range(10)] == [4, 0, 3, 7, 2, 9, 6, 8, 1, 5]
  assert [uniform[i] for i in range(10)] == [6, 0, 2, 3, 4, 7, 9, 5, 8, 1]
