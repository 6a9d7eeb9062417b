"""Finding images that two sources have in common, by any path, in any part, and quickly."""

import os
import shutil
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data import tfds_fixture
from tests.data.opened import open_source as opened
from tests.data.opened import tree
from vit_jax.data import datasets, sources
from vit_jax.data.sources import subset
from vit_jax.data.sources.base import Block


def by_names(one, other):
  """The expected result, computed slowly from the real paths of all files."""
  real = lambda name: os.path.realpath(name) if name.startswith("/") else name
  names = [{source.name(index) for index in range(len(source))} for source in (one, other)]
  both = set.intersection(*({real(name) for name in some} for some in names))
  return len(both), {name for name in names[0] if real(name) in both}


def assert_found(one, other):
  images, examples = by_names(one, other)
  for first, second in ((one, other), (other, one)):
    found = datasets.shared_images(first, second)
    assert (found.images if found else 0) == images
  assert not images or datasets.shared_images(one, other).example in examples
  return images


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  names = [f"{label}/{i:03}.png" for label, count in (("a", 40), ("b", 25)) for i in range(count)]
  return tree(tmp_path_factory.mktemp("data") / "images", *names)


@pytest.fixture(scope="module")
def bases(folder, tmp_path_factory):
  """Sources whose parts and selections overlap in many ways."""
  tfds = tmp_path_factory.mktemp("tfds")
  tfds_fixture.write_single_label_tfds(tfds, num_examples=50, num_classes=5, seed=0)
  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("TFDS_DATA_DIR", str(tfds))
    name = f"tfds:{tfds_fixture.SINGLE_LABEL}"
    splits = ("train", "test", "train[:60%]", "train[50%:]+test", "train[3:9]")
    found = [opened(name, split) for split in splits]
  found += [opened(f"folder:{folder}", split) for split in ("", "[:70%]", "[50%:]", "[:20]")]
  return [*found, opened("digits", "train"), opened("digits", "test"), opened("synthetic:10")]


@settings(max_examples=60)
@given(data=st.data())
def test_as_many_as_names_tell(bases, tmp_path_factory, data):
  def chosen():
    source = data.draw(st.sampled_from(bases[:-1]))
    if data.draw(st.booleans()):
      path = str(tmp_path_factory.getbasetemp() / "exclude.txt")
      subset.write_exclusions(path, source, data.draw(st.sets(st.integers(0, len(source) - 2))))
      source = sources.Remaining(source, path)
    if data.draw(st.booleans()):
      source = sources.Subset(source, data.draw(st.integers(1, len(source))))
    if data.draw(st.booleans()):
      rows = data.draw(st.sets(st.integers(0, len(source) - 1), min_size=1))
      source = sources.Selected(source, sources.Listed(list(rows)), "some")
    return source

  assert_found(chosen(), chosen())


def test_a_record_that_a_split_names_twice_is_one_image(bases):
  twice = sources.Mixed([bases[0], bases[0]])
  assert datasets.shared_images(twice, bases[0]).images == len(bases[0])


def test_the_same_files_by_other_paths(folder, tmp_path, monkeypatch):
  whole = opened(f"folder:{folder}")
  monkeypatch.chdir(folder.parent)
  (tmp_path / "link").symlink_to(folder)
  for path in ("images", f"{folder}/../images/", f"{tmp_path}/link"):
    assert assert_found(whole, opened(f"folder:{path}")) == 65
  (tmp_path / "copy" / "b").mkdir(parents=True)
  (tmp_path / "copy" / "a").symlink_to(folder / "a")
  for index in range(30):  # 25 of them exist
    (tmp_path / "copy" / "b" / f"other{index}.png").symlink_to(folder / "b" / f"{index:03}.png")
  (tmp_path / "copy" / "b" / "own.png").touch()
  for part, images in ((whole, 65), (opened(f"folder:{folder}", "[:20%]"), 13)):
    assert datasets.shared_images(part, opened(f"folder:{tmp_path}/copy")).images == images


def test_a_folder_inside_of_the_other(tmp_path):
  names = ("a/first/x/0.png", "a/first/y/1.png", "a/2.png", "b/second/x/3.png", "b/4.png")
  whole = opened(f"folder:{tree(tmp_path / 'all', *names)}")
  assert len(whole) == 5
  inside = opened(f"folder:{tmp_path}/all/a/first")  # its classes are x and y
  assert assert_found(whole, inside) == 2
  assert assert_found(opened(f"folder:{tmp_path}"), whole) == 5
  (tmp_path / "other" / "b").mkdir(parents=True)
  (tmp_path / "other" / "b" / "far").symlink_to(tmp_path / "all" / "b" / "second")
  (tmp_path / "other" / "a").symlink_to(tmp_path / "all" / "a" / "first" / "x")
  assert assert_found(whole, opened(f"folder:{tmp_path}/other")) >= 1


def test_two_links_to_one_file_are_one_image(folder, tmp_path):
  (tmp_path / "a").mkdir()
  for name in ("x.png", "y.png"):
    (tmp_path / "a" / name).symlink_to(folder / "a" / "000.png")
  source = opened(f"folder:{tmp_path}")
  for rows in ([0], [1], [0, 1]):
    some = sources.Selected(source, sources.Listed(rows), "some")
    assert datasets.shared_images(some, opened(f"folder:{folder}")).images == 1


def test_equal_names_elsewhere_are_other_images(folder, tmp_path):
  shutil.copytree(folder, tmp_path / "copy")  # which only tools/dedup.py finds
  assert (
    datasets.shared_images(opened(f"folder:{folder}"), opened(f"folder:{tmp_path}/copy")) is None
  )


def test_names_that_are_no_text(tmp_path):
  names = [os.fsdecode(b"a/\xff\xfe%d.png" % index) for index in range(10)]
  folder = f"folder:{tmp_path}"
  (tmp_path / "a").mkdir()
  for name in names:
    (tmp_path / name).touch()
  found = datasets.shared_images(opened(folder), opened(folder, "[:50%]"))
  assert found.images == 5
  assert found.in_words().isascii()


# --- size ---


class Counted:
  """Numbers that say how many of them were looked at."""

  looked_at = 0

  def __init__(self, *limits):
    self._limits = limits

  def __array__(self, dtype=None, copy=None):
    numbers = np.arange(*self._limits)
    Counted.looked_at += len(numbers)
    return numbers


class Large(sources.Source):
  """As many records as JFT-300M, in 31,744 files; each has a name on request."""

  class_names, identity = ("a",), "large"
  __getitem__ = labels = None

  def __init__(self, first=0, end=303_000_000):
    self._first, self._end = first, end

  def __len__(self):
    return self._end - self._first

  def name(self, index):
    return f"example {self._first + index}"

  def blocks(self):
    size, begin = 9_545, 0
    for number in range(-(-303_000_000 // size)):
      first = max(self._first - number * size, 0)
      end = min(self._end - number * size, size)
      if first < end:
        yield Block(f"/data/{number}", Counted(first, end), range(begin, begin + end - first))
        begin += end - first


@pytest.mark.parametrize(
  ("one", "other", "images"),
  [
    (Large(0, 302_950_000), Large(302_950_000), 0),
    (Large(0, 302_950_000), Large(302_949_999), 1),
    (sources.Subset(Large(), 90_000_000), Large(302_950_000), None),
    (Large(), Large(), datasets._ENOUGH),
  ],
)
def test_of_300_million_images_those_of_common_files_are_looked_at(one, other, images, monkeypatch):
  monkeypatch.setattr(Counted, "looked_at", 0)
  common = datasets.shared_images(one, other)
  files = 6 if images is None else -(-images // 9_545)  # 50,000 images lie in 6 files
  assert Counted.looked_at <= 2 * 9_545 * (files + 1)
  if images is None:  # a random 29.7% of 50,000
    assert abs(common.images - 50_000 * 90 / 303) < 500
    assert int(common.example.split()[1]) >= 302_950_000
  else:
    assert min(common.images if common else 0, datasets._ENOUGH) == images


def test_a_folder_takes_little_time_for_each_file(tmp_path):
  folder = tree(tmp_path, *(f"{label}/{i:06}.png" for label in "ab" for i in range(2000)))
  one, other = (opened(f"folder:{folder}", split) for split in ("", "[90%:]"))
  begin = time.process_time()
  assert datasets.shared_images(one, other).images == 400
  assert (time.process_time() - begin) / 4000 < 20e-6  # 100,000: 2 s
