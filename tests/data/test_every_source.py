"""What every format of data promises: the same digits in each, beside those of scikit-learn."""

import functools

import numpy as np
import pytest

from tests.data import digit_files
from tests.data.digit_files import COUNT, MAKERS
from tests.data.numbered import assert_equal, joined, train
from tests.data.opened import open_source
from vit_jax.data import by_label, datasets, identity, images, order
from vit_jax.data.order import MixedSource
from vit_jax.data.sources import Listed, Mixed, Remaining, Selected, Subset
from vit_jax.data.sources.subset import write_exclusions
from vit_jax.extras import prepared_cache as cache
from vit_jax.extras.duplicates import fingerprint
from vit_jax.extras.sources import webdataset

CUT = functools.partial(
  images.train_image, size=8, area=(0.5, 1), aspect=(1, 1), flip=True, max_pixels=100
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """Writes the digits in a format, once."""
  root = tmp_path_factory.mktemp("formats")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(webdataset, "INDICES", root / "indices")
    patch.setenv("TFDS_DATA_DIR", str(root / "tfds"))
    yield functools.cache(lambda name: MAKERS[name](root / name))


@pytest.fixture(params=MAKERS)
def format_of(request, made):
  """One of them."""
  return made(request.param)


def opened(one, cut="", **options):
  return open_source(one.spec, one.split + cut, **options)


def batches(source, *, hosts=1, steps=1, **options):
  """Batches of 16 images, those of all hosts joined."""
  options |= dict(seed=3, cut=CUT, threads=2, steps=steps)
  return joined([train(source, host=host, hosts=hosts, **options) for host in range(hosts)])


def test_what_it_holds(format_of):
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  assert (len(source), source.class_names) == (COUNT, tuple("0123456789"))
  assert [source.labels(i) for i in range(COUNT)] == [digits.labels(i) for i in range(COUNT)]
  for i in range(3):
    assert (source[i].labels, source[i].name) == (digits[i].labels, source.name(i))
  assert len({source.name(i) for i in range(COUNT)}) == COUNT
  again = identity.of(opened(format_of))
  assert identity.changes(identity.of(source), again) == []
  assert again.content


@pytest.mark.parametrize("hosts", [1, 2, 8])
@pytest.mark.parametrize("first", [0, 5])
def test_batches_are_a_function_of_the_step_for_any_number_of_hosts(format_of, hosts, first):
  """Also from the middle of an epoch: those of scikit-learn's digits, bit for bit."""
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  expected = batches(digits, start_step=first, steps=5)
  assert_equal(batches(source, start_step=first, steps=5, hosts=hosts), expected)
  assert_equal(batches(source, start_step=first + 3, steps=2, hosts=hosts), expected[3:])


def test_parts(format_of):
  source = opened(format_of)
  first, rest = opened(format_of, "[:70%]"), opened(format_of, "[70%:]")
  assert len(first) + len(rest) == COUNT
  assert datasets.shared_images(first, source).images == len(first)
  assert datasets.shared_images(first, rest) is None
  assert len({source.identity, first.identity, rest.identity}) == 3
  names = [source.name(i) for i in range(COUNT)]
  kept = [first.name(i) for i in range(len(first))]
  assert kept == [name for name in names if name in kept]


def test_subsets(format_of):
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  assert_equal(batches(Subset(source, 40)), batches(Subset(digits, 40)))
  assert datasets.shared_images(Subset(source, 20), Subset(source, 40)).images == 20


def test_exclusion(format_of, tmp_path):
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  write_exclusions(tmp_path / "list", source, [3, 50])
  left = [row for row in range(COUNT) if row not in (3, 50)]
  remaining = Remaining(source, str(tmp_path / "list"))
  assert_equal(batches(remaining), batches(Selected(digits, Listed(left), "left")))
  assert datasets.shared_images(remaining, Selected(source, Listed([3, 50]), "out")) is None


def test_duplicates(format_of):
  """tools/dedup.py compares such fingerprints, of whatever source."""
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  for row in (0, 31):
    ours, theirs = (fingerprint.fingerprint(s[row].image, max_pixels=100) for s in (source, digits))
    np.testing.assert_array_equal(ours.thumbnail, theirs.thumbnail)


def test_few_shot(format_of):
  source, digits = opened(format_of), digit_files.original(format_of.rows)
  drawn = [by_label.first_of_each_class(s, count=2, seeds=[1], threads=2) for s in (source, digits)]
  np.testing.assert_array_equal(*drawn)


def test_a_cache(format_of, tmp_path):
  source, options = opened(format_of), dict(side=8, max_pixels=100)
  cache.prepare(source, str(tmp_path), threads=2, **options)
  cached = cache.Cached(source, str(tmp_path), **options)
  assert_equal(batches(cached, steps=2), batches(source, steps=2))


def test_without_labels(format_of):
  source, bare = opened(format_of), opened(format_of, label_key="")
  assert (len(bare), bare.class_names, bare.labels(3), bare[3].labels) == (COUNT, (), (), ())
  assert datasets.shared_images(source, bare).images == COUNT
  assert bare.identity != source.identity
  assert (bare.name(3), bare[3].image) == (source.name(3), source[3].image)


def test_all_formats_mixed_by_weight(made):
  """An epoch of a mix has of each its share, and its images, whatever the format."""
  all_made = [made(name) for name in MAKERS]
  some = [opened(one) for one in all_made]
  same = [digit_files.original(one.rows) for one in all_made]
  parts = [MixedSource(COUNT, weight) for weight in (3.0, 1.0, 1.0, 2.0, 1.0, 2.0)]
  options = dict(parts=parts, start_step=2, steps=3)
  assert_equal(batches(Mixed(some), hosts=2, **options), batches(Mixed(same), **options))
  rows = order.stream(parts, seed=3)(range(1000))
  assert np.bincount(np.asarray(rows) // COUNT).tolist() == [300, 100, 100, 200, 100, 200]
