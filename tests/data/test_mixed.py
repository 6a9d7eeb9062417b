"""Several sources as one, and a source with other labels: labels, names and places."""

import numpy as np
import pytest

from tests.data.opened import assert_same, every, open_source, tree
from vit_jax.data import datasets
from vit_jax.data.sources import Listed, Mixed, Renumbered, Selected


@pytest.fixture
def folders(tmp_path):
  """Two folders of the classes a and b, and one of the classes a and c."""
  paths = {"one": "ab", "two": "ab", "other": "ac"}
  files = [f"{one}/{label}/{i}.png" for one in paths for label in paths[one] for i in range(3)]
  tree(tmp_path, *files)
  return [f"folder:{tmp_path / name}" for name in paths]


def test_examples_follow_one_another(folders):
  sources = [open_source(folders[0]), open_source(folders[1], "[:2]")]
  mixed = Mixed(sources)
  assert (len(mixed), mixed.class_names, mixed.multi_label) == (8, ("a", "b"), False)
  for found, wanted in zip(every(mixed), [*every(sources[0]), *every(sources[1])], strict=True):
    assert_same(found, wanted)
  assert [mixed.name(i) for i in range(8)] == [one.name for one in every(mixed)]
  assert [mixed.labels(i) for i in range(8)] == [one.labels for one in every(mixed)]
  for index in (-1, 8):
    with pytest.raises(IndexError):
      mixed[index]


@pytest.mark.parametrize("bare", [False, True])
def test_sources_with_other_classes_or_none_have_no_labels(folders, bare):
  other = open_source(folders[0], label_key="") if bare else open_source(folders[2])
  mixed = Mixed([open_source(folders[1]), other])
  assert (mixed.class_names, mixed.multi_label) == ((), False)
  assert {mixed.labels(i) for i in range(12)} == {one.labels for one in every(mixed)} == {()}


def test_identities_tell_what_is_mixed(folders):
  one, _, other = map(open_source, folders)
  assert len({Mixed(pair).identity for pair in ([one, other], [other, one], [one, one])}) == 3


def test_classes_in_another_order_are_numbered_as_in_the_first(folders):
  one, two, _ = map(open_source, folders)
  plain = Mixed([one, two])
  turned = Renumbered(two, {0: 1, 1: 0}, ("b", "a"))
  mixed = Mixed([one, turned])
  assert (mixed.class_names, mixed.multi_label) == (("a", "b"), False)
  assert [mixed.labels(i) for i in range(12)] == [plain.labels(i) for i in range(12)]
  for found, wanted in zip(every(mixed), every(plain), strict=True):
    assert_same(found, wanted)
  assert mixed.identity != plain.identity  # a cache of it as it was has no labels


def test_images_are_found_in_every_source(folders):
  one, two, other = map(open_source, folders)
  mixed = Mixed([one, Selected(two, Listed([5, 0]), "some")])
  places = np.concatenate([block.index(np.asarray(block.rows)) for block in mixed.blocks()])
  assert sorted(places[places >= 0]) == [*range(8)]
  assert datasets.shared_images(mixed, other) is None
  assert datasets.shared_images(mixed, one).images == 6
  found = datasets.shared_images(mixed, two)
  assert found.images == 2
  assert found.example in (two.name(0), two.name(5))
  assert datasets.shared_images(two, mixed).images == 2


def test_a_label_without_a_new_number_is_no_class(folders):
  """Batches then refuse it, by name."""
  seen = Renumbered(open_source(folders[2]), {1: 0}, ("c", "d"))
  assert [seen.labels(i) for i in range(6)] == [(-1,)] * 3 + [(0,)] * 3
  assert [example.labels for example in every(seen)] == [seen.labels(i) for i in range(6)]
