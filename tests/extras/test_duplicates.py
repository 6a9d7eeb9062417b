"""Search for copies: planted copies are found in both directions, different images are not."""

import base64
import io
import json
import re

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.natural import COPIES, encoded, photographs, resized, tiles
from tests.data.numbered import Listed
from vit_jax.data import images, sources
from vit_jax.data.sources import Example
from vit_jax.extras.duplicates import report
from vit_jax.extras.duplicates import search as compare
from vit_jax.extras.duplicates.fingerprint import KNOWN_VIEWS, THUMBNAIL, VIEW, fingerprint, view
from vit_jax.extras.duplicates.search import RADIUS, Index, Known, Search
from vit_jax.extras.inspection import gallery
from vit_jax.extras.probes.search import picture

# --- index of hashes ---


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_bands_find_what_a_comparison_with_all_finds(seed):
  rng = np.random.default_rng(seed)
  known = rng.integers(0, 2**64, 200, np.uint64)
  sought = int(known[7])
  for row in range(100, 155):  # at every distance up to some above the radius
    flips = rng.choice(64, row % 11, replace=False)
    known[row] = sought ^ sum(1 << int(bit) for bit in flips)
  expected = {
    row: distance
    for row, one in enumerate(known.tolist())
    if (distance := (one ^ sought).bit_count()) <= RADIUS
  }
  rows, distances = Index(known).near(sought)
  assert dict(zip(rows.tolist(), distances.tolist(), strict=True)) == expected
  assert len(expected) >= 45


# --- views ---


def test_a_view_is_what_the_cut_leaves():
  down, across = np.mgrid[:THUMBNAIL, :THUMBNAIL] + 0.5
  for (top, bottom), (left, right) in KNOWN_VIEWS:
    centres = (np.arange(VIEW) + 0.5) / VIEW
    for thumbnail, axis, first, last in ((down, 0, top, bottom), (across, 1, left, right)):
      seen = view(thumbnail, ((top, bottom), (left, right))).take(5, axis=1 - axis)
      expected = (first + (1 - first - last) * centres) * THUMBNAIL
      np.testing.assert_allclose(seen[1:-1], expected[1:-1], atol=0.05)


# --- pairs ---


def fingerprints(ones):
  return [fingerprint(one, max_pixels=10**6) for one in ones]


def searched(known):
  return Search(Known.of((3, i), one) for i, one in enumerate(fingerprints(known)))


@pytest.fixture(scope="module")
def originals():
  return [one for side in (96, 160) for one in photographs(25, side=side, seed=side)]


@pytest.mark.parametrize("kind", COPIES)
def test_planted_copies_are_found_whichever_of_the_two_was_changed(originals, kind):
  changed = [COPIES[kind](one) for one in originals]
  for known, sought in ((originals, changed), (changed, originals)):
    search = searched(known)
    found = [search.copied(one) for one in fingerprints(sought)]
    assert [i for i, one in enumerate(found) if (3, i) not in one] == []


@pytest.mark.parametrize("side", [48, 60])
def test_windows_that_share_nothing_are_not_copies(side):
  windows = tiles(side)
  search = searched(windows)
  for index, one in enumerate(fingerprints(windows)):
    assert search.copied(one) == {(3, index): 1.0}


def test_of_small_images_only_the_same_pixels_count():
  (image,) = photographs(1, side=31, seed=0)
  (larger,) = photographs(1, side=40, seed=0)
  search = searched([image, larger])
  assert search.copied(fingerprint(image, max_pixels=10**6)) == {(3, 0): 1.0}
  assert search.copied(fingerprint(encoded(image), max_pixels=10**6)) == {}
  assert (3, 1) in search.copied(fingerprint(encoded(larger), max_pixels=10**6))


@pytest.mark.parametrize("channels", [1, 2, 4, 5, 12])
@pytest.mark.parametrize("side", [20, 200])
def test_arrays_of_any_number_of_channels_are_compared(channels, side):
  rng = np.random.default_rng(0)
  pixels, other = rng.integers(0, 256, (2, side, side, channels), np.uint8)
  stream = io.BytesIO()
  np.save(stream, pixels)
  search = searched([pixels, other])
  assert search.copied(fingerprint(stream.getvalue(), max_pixels=10**6)) == {(3, 0): 1.0}
  last = pixels.copy()
  last[..., -1] ^= 1
  assert bool(search.copied(fingerprint(last, max_pixels=10**6))) == (side == 200)
  for shown in (report._thumbnail(pixels, 10**6), picture(pixels, "").data):
    assert images.decode(shown, max_pixels=10**6).std() > 1  # else it is black
  assert gallery.Gallery([""], lambda _: pixels).original(0).shape == (side, side, 3)


def test_images_of_one_colour_are_alike_only_where_they_are_the_same():
  flat = [np.full((64, 64, 3), grey, np.uint8) for grey in (0, 128, 255, 128)]
  search = searched(flat)
  found = [set(search.copied(one)) for one in fingerprints(flat)]
  assert found == [{(3, 0)}, {(3, 1), (3, 3)}, {(3, 2)}, {(3, 1), (3, 3)}]


def painted(*, patches: int, details: int) -> np.ndarray:
  """An image of large patches and fine details; each has its own seed."""
  draw = lambda seed, sides: np.random.default_rng(seed).normal(0, 1, (sides, sides))
  enlarge = lambda image: cv2.resize(image, (144, 144), interpolation=cv2.INTER_CUBIC)
  image = 128 + 40 * enlarge(draw(patches, 5)) + 18 * enlarge(draw(details, 36))
  return cv2.merge([np.clip(image, 0, 255).astype(np.uint8)] * 3)


def test_a_copy_has_both_patches_and_details():
  whole, image = KNOWN_VIEWS[0], painted(patches=0, details=0)
  one, again, laid_out, detailed = fingerprints(
    [image, encoded(image), painted(patches=0, details=1), painted(patches=1, details=0)]
  )
  likeness = lambda other: compare.likeness(*(view(x.thumbnail, whole) for x in (one, other)))
  assert likeness(laid_out)[0] > 0.85 > 0.4 > likeness(laid_out)[1]
  assert likeness(detailed)[0] < 0.7 < likeness(detailed)[1]
  found = [compare.copies(one, whole, other, whole) for other in (again, laid_out, detailed)]
  assert found[0] > 0.95
  assert found[1:] == [0, 0]


def pair(first, second):
  """The arguments of `copies` for two whole images."""
  one, other = fingerprints([first, second])
  return one, KNOWN_VIEWS[0], other, KNOWN_VIEWS[0]


def test_flat_windows_of_one_sky_are_not_copies():
  """Ramps with noise of two grey levels: their views correlate, their brightness differs."""
  rng = np.random.default_rng(0)
  down = np.linspace(0, 8, 96)[:, None, None]
  skies = [grey + down + rng.normal(0, 2, (96, 96, 3)) for grey in (150, 155, 160, 165)]
  skies = [np.clip(np.rint(sky), 0, 255).astype(np.uint8) for sky in skies]
  whole = [view(one.thumbnail, KNOWN_VIEWS[0]) for one in fingerprints(skies)]
  for first in range(4):
    for second in range(first):
      assert compare.correlation(whole[first], whole[second]) > 0.85
      assert compare.likeness(whole[first], whole[second])[0] < 0.6
      assert compare.copies(*pair(skies[first], skies[second])) == 0


def test_details_that_an_encoder_changes_tell_nothing():
  whole, image = KNOWN_VIEWS[0], painted(patches=0, details=0)
  (one,) = fingerprints([image])
  seen = view(one.thumbnail, whole)
  faint = seen + 0.7 * np.random.default_rng(0).standard_normal(seen.shape)
  assert compare.likeness(seen, faint.astype(np.float32))[1] == 1
  smooth = cv2.GaussianBlur(seen, None, 4)
  first, second = (smooth + np.random.default_rng(k).normal(0, 3, seen.shape) for k in range(2))
  assert compare.likeness(first, second)[1] < 0.5


@pytest.mark.parametrize(("gain", "shift"), [(1, 0), (0.3, 50), (5, -50), (1, 20)])
def test_concordance_is_lins(gain, shift):
  """1 minus the expected squared difference, divided by that of independent values."""
  first = np.random.default_rng(0).normal(100, 20, (32, 32))
  second = gain * first + shift
  independent = first.var() + second.var() + (first.mean() - second.mean()) ** 2
  expected = 1 - ((first - second) ** 2).mean() / independent
  assert compare.concordance(first, second) == pytest.approx(expected)
  assert compare.concordance(first * 0, first * 0) == 0


# --- results ---


def named(identity, ones):
  """A source of images in memory, with names that are HTML."""
  names = [f"<b>{identity} {i}</b>" for i in range(len(ones))]
  source = Listed([Example(one, (0,), name) for one, name in zip(ones, names, strict=True)])
  source.identity = identity
  return source


def test_the_list_and_the_page(tmp_path):
  ones = photographs(4, side=300, seed=0)
  train, test = named("train", ones), named("test", [encoded(one) for one in ones])
  wide = resized(ones[0], 3)[:1]  # 900 pixels wide
  tests = [test, named("more", [wide])]
  likes = [(3, 1, 0, 0.9), (0, 2, 0, 0.99), (3, 0, 1, 0.95)]
  made = [dict(zip(("train", "test", "set", "likeness"), like, strict=True)) for like in likes]
  for number, part in enumerate((made[:1], made[1:])):
    (tmp_path / f"found-{number}.jsonl").write_text("".join(json.dumps(x) + "\n" for x in part))
  pairs = report.gather(tmp_path, "found", train, tests)
  assert [{key: pair[key] for key in made[0]} for pair in pairs] == [made[1], made[2], made[0]]
  lines = [json.loads(line) for line in (tmp_path / report.PAIRS).read_text().splitlines()]
  assert lines == pairs
  assert [(one["train_name"], one["test_name"]) for one in lines] == [
    ("<b>train 0</b>", "<b>test 2</b>"),
    ("<b>train 3</b>", "<b>more 0</b>"),
    ("<b>train 3</b>", "<b>test 1</b>"),
  ]
  assert [path.name for path in tmp_path.iterdir()] == [report.PAIRS]
  report.write(tmp_path, pairs, train, tests, shown=2, max_pixels=10**6)
  remaining = sources.Remaining(train, str(tmp_path / report.EXCLUDE))
  assert [remaining[i].name for i in range(len(remaining))] == [train[1].name, train[2].name]
  listed = (tmp_path / report.EXCLUDE).read_text().splitlines()
  assert listed[1:] == [
    "0\t<b>train 0</b> is a copy of <b>test 2</b> (0.99)",
    "3\t<b>train 3</b> is a copy of <b>more 0</b> (0.95)",
  ]

  page = (tmp_path / report.PAGE).read_text()
  assert "2 of 3 pairs, the least alike first" in page
  assert "<b>" not in page
  assert re.findall(r"&lt;b&gt;(\w+ \d)&lt;", page) == ["train 3", "test 1", "train 3", "more 0"]
  pictures = [base64.b64decode(data) for data in re.findall(r"base64,([^\"]+)", page)]
  shapes = [images.decode(one, max_pixels=10**5).shape for one in pictures]
  assert len(shapes) == 4
  assert all(max(shape) <= 128 for shape in shapes)
