"""Permutations are bijections and random, for all lengths, seeds and streams."""

import collections
import hashlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vit_jax.data.order import Permutation

POWERS = [2**k + d for k in (10, 16, 24, 32) for d in (-1, 0, 1)]
LENGTHS = [*POWERS, 1437, 10_007, 1_281_167, 1_299_709, 14_197_122, 303_000_000]
SEEDS = range(8)


# --- bijections ---


@pytest.mark.parametrize("length", [*range(1, 70), 127, 128, 129, 997, 1024, 65_535, 65_537])
def test_every_number_stands_at_one_position(length):
  whole = Permutation(length, seed=length).at(range(length))
  assert sorted(whole.tolist()) == list(range(length))


@settings(max_examples=200)
@given(length=st.integers(1, 2**62 - 1), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_one_by_one_many_and_back_agree(length, seed, data):
  drawn = Permutation(length, seed=seed, stream=data.draw(st.integers(0, 99)))
  positions = data.draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=9, unique=True))
  found = drawn.at(positions)
  assert found.tolist() == [drawn[one] for one in positions]
  assert len(set(found.tolist())) == len(positions)
  assert (found >= 0).all()
  assert (found < length).all()
  assert drawn.find(found).tolist() == positions


def test_positions_that_there_are_not():
  drawn = Permutation(7, seed=0)
  assert len(drawn) == 7
  assert sorted(drawn) == list(range(7))  # iteration ends
  for position in (-1, 7):
    with pytest.raises(IndexError):
      drawn[position]


def test_a_permutation_never_changes():
  """Otherwise another release could not resume a run."""
  assert Permutation(1437, seed=5, stream=2).at(range(5)).tolist() == [338, 1395, 223, 510, 1254]
  assert Permutation(303_000_000, seed=0)[0] == 88_090_271
  small = [Permutation(n, seed=n, stream=1).at(range(n)).tolist() for n in range(1, 101)]
  assert hashlib.sha256(repr(small).encode()).hexdigest()[:16] == "d63d8985a96fe6aa"


# --- uniform ---


def p_value(numbers, length):
  """p-value of chi-square over tenths, for a sample drawn without replacement."""
  edges = np.arange(11) * length // 10
  expected = np.diff(edges) * len(numbers) / length
  statistic = ((np.histogram(numbers, edges)[0] - expected) ** 2 / expected).sum()
  return stats.chi2.sf(statistic / (1 - (len(numbers) - 1) / (length - 1)), 9)


def check(values):
  """Checks that p-values of independent tests are uniform: the smallest, and all together."""
  least = min(values)
  assert 1 - (1 - least) ** len(values) > 1e-4, f"a p-value of {least} among {len(values)}"
  assert stats.kstest(values, "uniform").pvalue > 1e-4


@pytest.mark.parametrize(("first", "size"), [(0, 300), (0, 30_000), (1 / 3, 3000)])
def test_any_stretch_takes_as_much_of_every_tenth(first, size):
  drawn = [Permutation(n, seed=s) for n in LENGTHS if n > 2 * size for s in SEEDS]
  begins = [int(first * len(one)) for one in drawn]
  stretches = [one.at(range(at, at + size)) for one, at in zip(drawn, begins, strict=True)]
  check([p_value(rows, len(one)) for rows, one in zip(stretches, drawn, strict=True)])


def test_neighbours_seeds_and_streams_are_independent():
  """Compares tenths of pairs: neighbouring positions, neighbouring seeds, neighbouring epochs."""
  pairs = collections.defaultdict(list)
  for length in (65_537, 1_281_167, 12_400_000):
    tenth = lambda numbers, n=length: numbers * 10 // n
    for seed in range(20):
      here, seeds, streams = (
        tenth(Permutation(length, seed=s, stream=t).at(range(2000)))
        for s, t in ((seed, 0), (seed + 1, 0), (seed, 1))
      )
      for kind, a, b in (
        ("positions", here[::2], here[1::2]),
        ("seeds", here, seeds),
        ("streams", here, streams),
        ("one of each", seeds, streams),
      ):
        pairs[kind].append(stats.chisquare(np.bincount(10 * a + b, minlength=100)).pvalue)
  for values in pairs.values():
    check(values)


@pytest.mark.parametrize("length", [2, 3, 4])
@pytest.mark.parametrize("by", ["seed", "stream"])
def test_all_orders_of_a_few_are_as_frequent(length, by):
  ways = math.factorial(length)
  drawn = (Permutation(length, **(dict(seed=7, stream=7) | {by: i})) for i in range(30 * ways))
  counts = collections.Counter(tuple(one) for one in drawn)
  found = [counts[way] for way in itertools.permutations(range(length))]
  assert stats.chisquare(found).pvalue > 1e-3


@pytest.mark.parametrize("length", [4, 9, 15, 25, 64])
def test_half_of_all_orders_are_even(length):
  """With two odd factors, rounds that rotate rows or columns would give only even permutations."""
  minus = lambda order: np.linalg.det(np.eye(length)[order.tolist()]) < 0
  odd = sum(minus(Permutation(length, seed=seed).at(range(length))) for seed in range(200))
  assert stats.binomtest(odd, 200).pvalue > 1e-4
