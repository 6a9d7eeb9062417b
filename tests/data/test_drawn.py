"""Examples to show come from all classes, by a seed."""

import pytest

from vit_jax.data import drawn, sources

SORTED = ["a"] * 900 + ["b"] * 90 + ["c"] * 10


@pytest.mark.parametrize("count", [3, 8, 24])
def test_a_sorted_set_shows_all_its_classes_alike_often(count):
  found = drawn.of_all_classes(SORTED, count)
  assert len(set(found)) == count
  often = [[SORTED[i] for i in found].count(name) for name in "abc"]
  assert max(often) - min(often) <= 1
  assert found == sorted(found)  # here, by class too


def test_the_seed_chooses():
  assert drawn.of_all_classes(SORTED, 9) == drawn.of_all_classes(SORTED, 9)
  assert drawn.of_all_classes(SORTED, 9) != drawn.of_all_classes(SORTED, 9, seed=1)


def test_few_are_all():
  assert drawn.of_all_classes(["a", "b", "a"], 8) == [0, 2, 1]


def test_of_a_source():
  source = sources.open_source("digits", split="test")
  found = drawn.of_source(source, 20)
  assert sorted(source.labels(i)[0] for i in found) == sorted([*range(10)] * 2)
