"""Parts of folders: random, equal for all classes, and stable when other images are added."""

import collections
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from vit_jax.data import sources
from vit_jax.data.sources import part

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def numbered(counts):
  """{folder: names}, with numbered names as cameras give them."""
  return {f"class{i}": [f"img_{j:04}.png" for j in range(n)] for i, n in enumerate(counts)}


def chosen(split, names):
  return part.choose(part.parse(split), names)


def pairs(listings):
  """(class, name) of each image."""
  return {(label, name) for label, names in enumerate(listings) for name in names}


def subjects(root, people=20, images=30):
  """Writes two classes with half of the people each; file names tell the person and the day."""
  for person in range(people):
    folder = root / ("old" if person % 2 else "new")
    folder.mkdir(parents=True, exist_ok=True)
    for day in range(images):
      (folder / f"subject{person:02}_2020-01-{day:02}.png").touch()
  return root


def test_a_part_of_images_named_by_subject_and_date_has_all_of_them(tmp_path):
  """In the order of names, the last tenth of a class has only one person."""
  people = lambda source: collections.Counter(
    os.path.basename(source.name(i))[:9] for i in range(len(source))
  )
  part = sources.open_source(f"folder:{subjects(tmp_path)}", split="[90%:]")
  found = people(part)
  assert sum(found.values()) == 60
  assert len(found) > 15
  assert max(found.values()) < 12


@settings(max_examples=200)
@given(counts=COUNTS, cuts=st.lists(st.integers(0, 100), min_size=2, max_size=2), data=st.data())
def test_parts_are_nested_and_complements(counts, cuts, data):
  names, percent = numbered(counts), data.draw(st.booleans())
  whole, unit = (100, "%") if percent else (sum(counts), "")
  low, high = sorted(round(cut * whole / 100) for cut in cuts)
  ends = part.Part("", low, high, percent).ends(counts) if low < high else None
  if percent:
    assert ends is None or (abs(ends - np.outer([low, high], counts) / 100) <= 1).all()
  elif ends is not None:
    assert ends.sum(axis=1).tolist() == [low, high]
    shares = np.array([low, high])[:, None] * np.array(counts) / sum(counts)
    assert (abs(ends - shares) < 1.5).all()  # within about one image
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


@settings(max_examples=100)
@given(counts=COUNTS, end=st.integers(1, 50))
def test_numbers_from_the_end_are_those_from_the_beginning(counts, end):
  names = numbered(counts)
  attempt = lambda split: _result(split, names)
  assert attempt(f"[-{end}%:]") == attempt(f"[{100 - end}%:]")
  assert attempt(f"[:-{end}%]") == attempt(f"[:{100 - end}%]")
  if end < sum(counts):
    assert attempt(f"[-{end}:]") == attempt(f"[{sum(counts) - end}:]")


def _result(split, names):
  try:
    return chosen(split, names)
  except sources.SourceError as error:
    return str(error).replace(split, "")


def test_images_that_are_added_to_one_class_change_nothing_in_another():
  before = numbered([30, 50])
  after = before | {"class0": [*before["class0"], *(f"new{i}.png" for i in range(99))]}
  assert chosen("[:80%]", before)[1] == chosen("[:80%]", after)[1]
  kept = {*chosen("[:80%]", before)[0]}
  # The images of the class itself keep their relative order.
  order = chosen("[:50%]", after)[0]
  assert {*order} - {*before["class0"]}
  ranks = sorted(after["class0"], key=part._random)
  assert [name for name in ranks if name in before["class0"]][:24] == sorted(kept, key=part._random)


@pytest.mark.parametrize(("images", "cut"), [(1, 1), (2, 1), (4, 3), (5, 4), (6, 5), (30, 27)])
def test_a_tenth_of_a_small_class_is_an_image(images, cut):
  assert part.parse("[:90%]").ends([images]).tolist() == [[0], [cut]]
  assert part.parse("[90%:]").ends([images]).tolist() == [[cut], [images]]
  assert part.parse("[:100%]").ends([images]).tolist() == [[0], [images]]


def test_whole_numbers_take_of_every_class_its_share():
  ends = part.parse("[:1000]").ends([5000, 3000, 2000]).tolist()[1]
  assert ends == [500, 300, 200]
  assert part.parse("[:10]").ends([500, 300, 200]).tolist()[1] == [5, 3, 2]


def test_a_part_is_even_over_the_names():
  """Chi-square over tenths of the sorted names; the choices of the classes are independent."""
  names = numbered([10_000] * 12)
  several = {
    folder: [name.replace("img", folder) for name in some] for folder, some in names.items()
  }
  values = []
  for one in chosen("[:30%]", several):
    rows = np.array([int(name[-8:-4]) for name in one])
    statistic = ((np.bincount(rows // 1000, minlength=10) - 300) ** 2 / 300).sum() / 0.7
    values.append(stats.chi2.sf(statistic, 9))
  assert min(values) > 1e-5
  assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_a_part_never_changes():
  """Otherwise another release could train on images that were held out."""
  assert chosen("[:30%]", numbered([10])) == [["img_0005.png", "img_0008.png", "img_0009.png"]]


@pytest.mark.parametrize(
  ("split", "of"),
  [
    *((split, "") for split in ("[:0%]", "[50%:50%]", "[:101%]", "[-101%:]", "[90%]", "[10%:20]")),
    *((split, "") for split in ("train[:9%]", "[:9%] ", "[:٣%]", "[:1e3]", "[::2]", "[9%:\n]")),
    *((split, " (30 in all)") for split in ("[:31]", "[30:]", "[5:5]", "[:0]", "[-31:]")),
  ],
)
def test_what_is_no_part(split, of):
  said = f"These images{of} have no split {split!r}; set it to"
  with pytest.raises(sources.SourceError, match=f"^{re.escape(said)}"):
    chosen(split, numbered([10, 20]))
