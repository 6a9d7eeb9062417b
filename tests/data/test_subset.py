"""Parts of a source: random subsets are nested and fixed; exclusion lists are left out."""

import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import resolved
from vit_jax import config as c
from vit_jax.data import datasets, sources
from vit_jax.data.sources import subset
from vit_jax.training import run as runs


class Numbers(sources.Source):
  """Examples that are their own indices."""

  class_names, identity, labels = ("a", "b"), "numbers", None

  def __init__(self, length):
    self._length = length

  def __len__(self):
    return self._length

  def __getitem__(self, index):
    assert 0 <= index < self._length
    return sources.Example(index, (), "")


def numbers(source):
  return [source[index].image for index in range(len(source))]


@settings(max_examples=40)
@given(length=st.integers(1, 100), data=st.data())
def test_the_smaller_lies_inside_the_larger_and_none_comes_twice(length, data):
  size = data.draw(st.integers(1, length))
  part, whole = (numbers(sources.Subset(Numbers(length), n)) for n in (size, length))
  assert sorted(whole) == list(range(length))
  assert part == whole[:size]


def test_a_subset_is_even_over_the_source():
  chosen = numbers(sources.Subset(Numbers(20_000), 4000))
  counts = np.histogram(chosen, bins=50, range=(0, 20_000))[0]
  # In a random subset each count has mean 80 and variance 64.
  assert 20 < ((counts - 80) ** 2 / 64).sum() < 95


def test_a_subset_never_changes():
  """Otherwise results on subsets could not be compared between releases."""
  assert numbers(sources.Subset(Numbers(1437), 5)) == [867, 790, 981, 320, 1193]


def test_a_subset_of_jft_needs_no_memory():
  tracemalloc.start()
  chosen = sources.Subset(Numbers(303_000_000), 90_000_000)
  assert len({chosen[index].image for index in (0, 1, 45_000_000, 89_999_999)}) == 4
  assert tracemalloc.get_traced_memory()[1] < 2**20
  tracemalloc.stop()


@given(length=st.integers(1, 60), data=st.data())
def test_what_remains_is_the_rest_in_order(tmp_path_factory, length, data):
  excluded = data.draw(st.sets(st.integers(0, length - 1), max_size=length - 1))
  path = str(tmp_path_factory.getbasetemp() / "excluded.txt")
  subset.write_exclusions(path, Numbers(length), excluded, remarks={3: "a\nb\tc \udcff"})
  remaining = sources.Remaining(Numbers(length), path)
  assert numbers(remaining) == [index for index in range(length) if index not in excluded]


def test_remarks_order_and_repetitions_do_not_matter(tmp_path):
  path = tmp_path / "list.txt"
  path.write_text("# source: numbers\n7\tsome name\n# remark\n2\n7\n")
  assert numbers(sources.Remaining(Numbers(9), str(path))) == [0, 1, 3, 4, 5, 6, 8]
  assert os.listdir(tmp_path) == ["list.txt"]


@pytest.mark.parametrize(
  ("text", "message"),
  [
    (None, r'list\.txt" \(exclude\) cannot be read: No such'),
    (b"# source: others\n1\n", r'is for other examples: for "others".*"numbers"'),
    (b"1\n2\n", 'not a list of examples: its first line must be "# source: " and.*: numbers"'),
    (b"\x89PNG\r\n\x1a\n\xff\x00" * 1000, "is not a list of examples"),
    (b"# source: numbers\n1\n10\n", r"'10' in line 3; a line must begin with .*, 0 to 9\."),
    (b"# source: numbers\n-1\n", r"'-1' in line 2"),
    (b"# source: numbers\n" + b"1" * 9999, f"'{'1' * 40}' in line 2"),
    (b"# source: numbers\n" + b"".join(b"%d\n" % i for i in range(10)), "leaves none of the 10"),
  ],
)
def test_wrong_lists(tmp_path, text, message):
  path = tmp_path / "list.txt"
  if text is not None:
    path.write_bytes(text)
  with pytest.raises(sources.SourceError, match=message):
    sources.Remaining(Numbers(10), str(path))


def opened(**changes):
  dataset = c.Dataset(source="digits", split="train", **changes)
  return datasets.opener_of(c.Data()).source(dataset)


def test_what_is_excluded_is_left_out_before_the_subset_is_taken(tmp_path):
  whole = opened()
  path = str(tmp_path / "list.txt")
  subset.write_exclusions(path, whole, range(0, 1437, 2))
  part = opened(exclude=path, subset=718)
  assert (len(part), part.class_names, part.multi_label) == (718, whole.class_names, False)
  names = {part[index].name for index in range(len(part))}
  assert names == {whole[index].name for index in range(1, 1437, 2)}
  train = c.Dataset("digits", "train", exclude=path, subset=719)
  said = r"^config\.data\.train: subset=719 is more than the 718 examples there"
  with pytest.raises(sources.SourceError, match=said):
    runs.open_data(resolved.config(data=c.Data(train=train)))


def test_parts_of_a_source_tell_each_other_apart(tmp_path):
  first, second = str(tmp_path / "1"), str(tmp_path / "2")
  subset.write_exclusions(first, opened(), [3])
  subset.write_exclusions(second, opened(), [4])
  parts = [{}, dict(subset=9), dict(subset=10), dict(exclude=first), dict(exclude=second)]
  parts += [dict(exclude=first, subset=9)]
  assert len({opened(**part).identity for part in parts}) == len(parts)
  # A list for the whole source is not valid for a part: positions differ.
  with pytest.raises(sources.SourceError, match="is for other examples"):
    sources.Remaining(opened(subset=9), first)
