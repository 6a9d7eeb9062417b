"""Parts of folders: random, equal for all classes, and stable when other images are added."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.opened import open_source, tree
from vit_jax.data import sources
from vit_jax.data.sources import part, table
from vit_jax.data.sources.table import Labels

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def numbered(counts):
  """{folder: names}, with numbered names as cameras give them."""
  return {f"class{i}": [f"img_{j:04}.png" for j in range(n)] for i, n in enumerate(counts)}


def chosen(split, names):
  return part.choose(part.parse(split), names)


def pairs(listings):
  """(class, name) of each image."""
  return {(label, name) for label, names in enumerate(listings) for name in names}


@settings(max_examples=200)
@given(counts=COUNTS, cuts=st.lists(st.integers(0, 100), min_size=2, max_size=2), data=st.data())
def test_parts_are_nested_and_complements(counts, cuts, data):
  names, percent = numbered(counts), data.draw(st.booleans())
  whole, unit = (100, "%") if percent else (sum(counts), "")
  low, high = sorted(round(cut * whole / 100) for cut in cuts)
  if low < high:
    ends = part.Part("", low, high, percent).ends(counts)
    shares = np.outer([low, high], counts) / whole
    assert (abs(ends - shares) < (1 + 1e-9 if percent else 1.5)).all()  # within about one image
    assert percent or ends.sum(axis=1).tolist() == [low, high]
  try:
    parts = [
      chosen(f"[{a}{unit}:{b}{unit}]", names) for a, b in ((0, low), (low, high), (high, whole))
    ]
  except sources.SourceError:
    return  # one of the parts leaves a class empty
  assert sum(len(pairs(one)) for one in parts) == sum(counts)
  assert set().union(*map(pairs, parts)) == pairs(names.values())
  assert pairs(chosen(f"[:{high}{unit}]", names)) == pairs(parts[0]) | pairs(parts[1])
  assert all(one == sorted(one) for listing in parts for one in listing)


def test_images_that_are_added_to_one_class_change_nothing_in_another():
  """The images of the class itself keep their relative order."""
  before = numbered([30, 50])
  after = before | {"class0": [*before["class0"], *(f"new{i}.png" for i in range(99))]}
  assert chosen("[:80%]", before)[1] == chosen("[:80%]", after)[1]
  assert {*chosen("[:50%]", after)[0]} - {*before["class0"]}
  ranks = [name for name in sorted(after["class0"], key=part._random) if name in before["class0"]]
  assert {*ranks[:24]} == {*chosen("[:80%]", before)[0]}


@pytest.mark.parametrize(("images", "cut"), [(1, 1), (2, 1), (4, 3), (5, 4), (6, 5), (30, 27)])
def test_a_tenth_of_a_small_class_is_an_image(images, cut):
  assert part.parse("[:90%]").ends([images]).tolist() == [[0], [cut]]
  assert part.parse("[90%:]").ends([images]).tolist() == [[cut], [images]]
  assert part.parse("[:100%]").ends([images]).tolist() == [[0], [images]]


def test_a_class_of_one_image_is_in_the_first_part_alone():
  assert [len(names) for names in chosen("[:90%]", numbered([30, 1]))] == [27, 1]
  for split in ("[90%:]", "[-10%:]", "[90%:100%]"):
    assert [len(names) for names in chosen(split, numbered([30, 1]))] == [3, 0]
  with pytest.raises(sources.SourceError, match="one image cannot be in two parts: add images"):
    chosen("[:40%]", numbered([30, 1]))
  with pytest.raises(sources.SourceError, match="Each class has one image, so there is none"):
    chosen("[90%:]", numbered([1, 1]))


def test_a_note_names_the_classes_that_a_part_lacks(tmp_path):
  folder = f"folder:{tree(tmp_path, 'a/0.png', 'a/1.png', 'b/0.png')}"
  rest = open_source(folder, "[90%:]")
  assert (len(rest), rest.class_names) == (1, ("a", "b"))
  assert rest.notes[0].startswith("1 classes of one image ('b') have none in [90%:]; it is in the")
  assert not open_source(folder, "[:90%]").notes


def test_whole_numbers_take_of_every_class_its_share():
  ends = part.parse("[:1000]").ends([5000, 3000, 2000]).tolist()
  assert ends == [[0, 0, 0], [500, 300, 200]]


@pytest.mark.parametrize(
  ("split", "same"), [("[-10%:]", "[90%:]"), ("[:-10%]", "[:90%]"), ("[-9:]", "[21:]")]
)
def test_numbers_from_the_end_are_those_from_the_beginning(split, same):
  assert chosen(split, numbered([10, 20])) == chosen(same, numbered([10, 20]))


def test_a_part_is_even_over_the_names():
  (names,) = chosen("[:30%]", numbered([10_000]))
  counts = np.histogram([int(name[4:-4]) for name in names], bins=50, range=(0, 10_000))[0]
  # In a random part each count has mean 60 and variance 42.
  assert 20 < ((counts - 60) ** 2 / 42).sum() < 95


def test_a_part_never_changes():
  """Otherwise another release could train on images that were held out."""
  assert chosen("[:30%]", numbered([10])) == [["img_0005.png", "img_0008.png", "img_0009.png"]]


PERCENT = ("[:0%]", "[50%:50%]", "[:101%]", "[-101%:]", "[90%]", "[10%:20]")
NOT_PARTS = ("train[:9%]", "[:9%] ", "[:٣%]", "[:1e3]", "[::2]", "[9%:\n]")


@pytest.mark.parametrize(
  "split", [*PERCENT, *NOT_PARTS, "[:31]", "[30:]", "[5:5]", "[:0]", "[-31:]"]
)
def test_what_is_no_part(split):
  of = "" if split in PERCENT + NOT_PARTS else " (30 in all)"
  said = f"These images{of} have no split {split!r}; set it to"
  with pytest.raises(sources.SourceError, match=f"^{re.escape(said)}"):
    chosen(split, numbered([10, 20]))


def test_names_that_repeat_in_a_class_have_no_parts():

  def some(labels, split):
    keys, labels = np.array([b"x", b"x"]), Labels.of_numbers(labels, ["a", "b"])
    return table._in_part(keys, labels, part.parse(split))[0].tolist()

  assert some([0, 1], "[:100%]") == some([0, 0], "") == [0, 1]
  said = r"same name, so the part '\[:50%\]' is not certain"
  with pytest.raises(sources.SourceError, match=said):
    some([0, 0], "[:50%]")
