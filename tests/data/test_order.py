"""The stream of a run: every epoch has its own order; in a mix every source has its share."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.numbered import assert_equal, joined, jpegs, train
from vit_jax.data import order
from vit_jax.data.order import MixedSource

WEIGHTS = st.lists(
  st.one_of(st.integers(1, 20), st.floats(1e-6, 1e12, allow_nan=False)), min_size=2, max_size=6
)


def rows_of(parts, positions, *, seed=3):
  return np.array(order.stream(parts, seed=seed)(positions))


def shares(weights):
  exact = [Fraction(str(weight)) for weight in weights]
  return [weight / sum(exact) for weight in exact]


@given(weights=WEIGHTS, block=st.integers(0, 10**9))
def test_every_source_has_its_share_after_any_number_of_blocks(weights, block):
  whole = order.whole_weights(weights)
  size = order.block_size(whole)
  before, after = (order.taken(size * number, whole) for number in (block, block + 1))
  assert sum(after) == size * (block + 1)
  for first, end, share in zip(before, after, shares(weights), strict=True):
    assert first <= end
    assert abs(end - size * (block + 1) * share) < len(weights)
    if sum(whole) <= 10_000:
      assert end - first == size * share  # exact in each block


@pytest.mark.parametrize(
  ("weights", "whole", "size"),
  [
    ((0.1, 0.3), (1, 3), 1000),
    ((1_281_167, 1_281_167), (1, 1), 1000),
    ((1.5, 2.5, 3), (3, 5, 6), 1008),
    ((0.7, 0.2999), (7000, 2999), 9999),
    ((1, 1 / 3), None, 10_000),
  ],
)
def test_a_block_holds_whole_shares_if_it_can(weights, whole, size):
  found = order.whole_weights(weights)
  assert found == (whole or found)
  assert order.block_size(found) == size


@settings(max_examples=10)
@given(
  sizes=st.lists(st.integers(1, 60), min_size=1, max_size=4),
  weights=st.lists(st.sampled_from([1, 2, 7, 0.1, 1 / 3]), min_size=4, max_size=4),
)
def test_no_image_comes_again_before_all_others_of_its_source_came(sizes, weights):
  parts = [MixedSource(size, weight) for size, weight in zip(sizes, weights, strict=False)]
  rows = rows_of(parts, range(1100))
  first = 0
  for size in sizes:
    own = rows[(rows >= first) & (rows < first + size)] - first
    for at in range(0, len(own) - size + 1, size):
      assert sorted(own[at : at + size]) == list(range(size))
    last = own[len(own) - len(own) % size :]
    assert len(set(last)) == len(last)
    first += size
  assert rows.max() < first


def by_class(sizes, weight=1.0):
  """A source with classes of these sizes in turns, as far as they go, all drawn equally often."""
  turns = sorted((turn, label) for label, size in enumerate(sizes) for turn in range(size))
  labels = np.array([label for _, label in turns])
  rows = tuple(np.flatnonzero(labels == label) for label in range(len(sizes)))
  return MixedSource(len(turns), weight, rows)


@settings(max_examples=20)
@given(
  begin=st.integers(0, 5000),
  size=st.integers(1, 2500),
  first=st.sampled_from([MixedSource(30, 2), by_class([20, 3, 7], 2)]),
  one=st.booleans(),
  step=st.integers(1, 64),
)
def test_the_stream_is_the_same_however_it_is_cut(begin, size, first, one, step):
  parts = [first, MixedSource(7, 1 / 3), MixedSource(500, 0.001)]
  rows = order.stream(parts[:1] if one else parts, seed=3)
  whole = rows(range(begin, begin + size))
  cut = [row for at in range(begin, begin + size, step) for row in rows(range(at, at + step))]
  assert whole == cut[:size]
  assert all(type(row) is int for row in whole)


def test_places_of_a_source_are_drawn_anew_and_evenly():
  rows = rows_of([MixedSource(10**6, 1), MixedSource(10**6, 3)], range(400 * 1000))
  blocks = (rows < 10**6).reshape(400, 1000)
  assert (blocks.sum(axis=1) == 250).all()
  assert len(np.unique(blocks, axis=0)) == 400
  counts = blocks.sum(axis=0)  # each is binomial: mean 100, standard deviation 8.7
  assert abs(counts - 100).max() < 5 * 8.7
  assert counts.std() == pytest.approx(8.7, rel=0.15)


def test_one_source_has_the_order_that_it_has_without_a_mix():
  plain = order.epochs(30, seed=3)(range(100))
  assert rows_of([MixedSource(30, 0.2)], range(100)).tolist() == list(plain)


def test_mixes_keep_their_order():
  """A run that resumes with a later release must see the same images."""
  parts = [MixedSource(5, 2), MixedSource(3, 1)]
  first, later = (rows_of(parts, at, seed=7).tolist() for at in (range(15), range(996, 1006)))
  assert first == [1, 2, 0, 3, 4, 5, 1, 0, 3, 2, 4, 4, 7, 6, 5]
  assert later == [3, 5, 1, 3, 0, 2, 7, 6, 5, 7]


@settings(max_examples=8)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=7), seed=st.integers(0, 9))
def test_every_class_comes_equally_often_and_all_its_images_before_one_comes_again(sizes, seed):
  source = by_class(sizes)
  block = order.block_size((1,) * len(sizes))
  drawn = rows_of([source], range(2 * block), seed=seed)
  for rows in source.classes:
    own = drawn[np.isin(drawn, rows)]
    if len(sizes) > 1:
      assert len(own) == 2 * block / len(sizes)
    for at in range(0, len(own), len(rows)):
      passed = own[at : at + len(rows)]
      assert len({*passed.tolist()}) == len(passed)
  assert {*drawn.tolist()} == {*range(source.examples)}  # none is left out


def test_classes_of_a_source_of_a_mix_come_equally_often_within_its_share():
  rows = rows_of([MixedSource(50, 3.0), by_class([19, 1])], range(8000))
  own = rows[rows >= 50] - 50
  assert len(own) == 2000
  assert (own == 1).sum() == 1000  # the only image of its class


def test_balanced_classes_keep_their_order():
  """A run that resumes with a later release must see the same images."""
  rows = rows_of([by_class([5, 2, 1])], range(12), seed=7).tolist()
  assert rows == [3, 4, 1, 5, 4, 2, 1, 0, 6, 7, 3, 0]


def test_epochs_seeds_and_sources_have_orders_of_their_own():
  first, other = (order.epochs(50, seed=s)(range(150)) for s in (0, 1))
  mixed = rows_of([MixedSource(50, 1)] * 2, range(100))
  parts = [tuple(rows[at : at + 50]) for rows in (first, other) for at in (0, 50, 100)]
  assert len({*parts, tuple(mixed[mixed < 50]), tuple(mixed[mixed >= 50] - 50)}) == 8


def test_the_order_never_changes():
  """Otherwise runs could not be resumed exactly."""
  rows = order.epochs(10, seed=7)(range(20))
  assert rows == [6, 0, 2, 3, 4, 7, 9, 5, 8, 1, 2, 6, 9, 8, 1, 7, 4, 5, 3, 0]


@given(start=st.integers(0, 10**6), count=st.integers(1, 40), repeats=st.integers(1, 5))
@settings(max_examples=30)
def test_each_example_comes_several_times_in_a_row(start, count, repeats):
  for parts in ([MixedSource(30, 1.0)], [MixedSource(30, 1.0), MixedSource(20, 3.0)]):
    once = order.stream(parts, seed=3)
    again = order.stream(parts, seed=3, repeats=repeats)
    rows = [once(range(at // repeats, at // repeats + 1))[0] for at in range(start, start + count)]
    assert list(again(range(start, start + count))) == rows


@pytest.mark.parametrize("hosts", [2, 4])
def test_repeats_have_draws_of_their_own_and_do_not_depend_on_hosts(hosts):
  """Also where a host's part ends between the repeats of an image."""
  source, options = jpegs(20), dict(steps=1, start_step=1, batch_size=12, repeats=3)
  (single,) = train(source, **options)
  shared = [train(source, host=host, hosts=hosts, **options) for host in range(hosts)]
  assert_equal(joined(shared), [single])
  pictures = single["image"].reshape(4, 3, -1)
  labels = single["labels"].reshape(4, 3)
  assert (labels == labels[:, :1]).all()
  assert all(len({draw.tobytes() for draw in draws}) > 1 for draws in pictures)
