"""The stream of a run: each epoch has its own order."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from vit_jax.data import order


@settings(max_examples=10, deadline=None)
@given(length=st.integers(1, 12), begin=st.integers(0, 30), size=st.integers(1, 20))
def test_every_epoch_has_every_example_once_however_it_is_cut(length, begin, size):
  rows = pickle.loads(pickle.dumps(order.epochs(length, seed=3)))
  whole = rows(range(5 * length))
  for epoch in range(5):
    assert sorted(whole[epoch * length : (epoch + 1) * length]) == list(range(length))
  part = rows(range(begin, begin + size))
  assert part == [rows(range(at, at + 1))[0] for at in range(begin, begin + size)]
  assert all(type(row) is int for row in part)


def test_epochs_and_seeds_differ():
  first, other = (order.epochs(50, seed=s)(range(150)) for s in (0, 1))
  parts = [rows[at : at + 50] for rows in (first, other) for at in (0, 50, 100)]
  assert len({tuple(part) for part in parts}) == 6


def test_the_order_never_changes():
  """Otherwise runs could not be resumed exactly."""
  rows = order.epochs(10, seed=7)(range(20))
  assert rows == [6, 0, 2, 3, 4, 7, 9, 5, 8, 1, 2, 6, 9, 8, 1, 7, 4, 5, 3, 0]
