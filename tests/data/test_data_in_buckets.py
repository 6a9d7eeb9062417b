"""Data in buckets, by real servers of both protocols: as on this machine, bit for bit."""

import io
import itertools
import logging

import pyarrow
import pytest
from pyarrow import parquet

from tests import buckets
from tests.data import digit_files
from tests.data.numbered import assert_equal, train
from tests.data.opened import assert_same, every, open_source
from tests.data.test_every_source import CUT, batches
from vit_jax.data import byte_ranges, datasets, sources
from vit_jax.data.sources import Mixed, SourceError, Subset
from vit_jax.extras.buckets import client
from vit_jax.extras.sources import webdataset
from vit_jax.storage import files
from vit_jax.storage.base import ChangedError
from vit_jax.storage.paths import path_of

FORMATS = {"gs": ("folder", "csv", "parquet", "wds", "tfds"), "s3": ("folder", "tfds")}
NUMBERS = itertools.count()

# For what follows from reading objects by their stamps, which both protocols are tested for.
ONE = pytest.mark.parametrize("proxy", ["gs"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=["gs", "s3"])
def proxy(request):
  """The proxy before a server."""
  with buckets.served(request.param) as made:
    made.url = f"{request.param}://{buckets.BUCKET}"
    yield made


@pytest.fixture(scope="module")
def made(proxy, tmp_path_factory):
  """The digits in every format: by name the split, and the spec here and in a bucket."""
  root = tmp_path_factory.mktemp("formats")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(webdataset, "INDICES", root / "indices")
    patch.setattr(client, "PAUSES", (0.01, 0.02, 0.05))
    patch.setattr("vit_jax.storage.base.PAUSES", (0.01,))
    patch.setenv("TFDS_DATA_DIR", str(root / "tfds"))
    formats = FORMATS[proxy.url.partition(":")[0]]
    here = {name: digit_files.MAKERS[name](root / name) for name in formats}
    files.copy(root, path_of(f"{proxy.url}/data"))
    (info,) = (root / "tfds").rglob("dataset_info.json")
    specs = {name: one.spec for name, one in here.items()} | {"tfds": f"tfds:{info.parent}"}
    there = {name: spec.replace(str(root), f"{proxy.url}/data") for name, spec in specs.items()}
    yield {name: (one.split, specs[name], there[name]) for name, one in here.items()}


@pytest.fixture
def folder(proxy):
  """A new folder in the bucket."""
  return path_of(f"{proxy.url}/new/{next(NUMBERS)}")


def write_table(path, columns):
  stream = io.BytesIO()
  parquet.write_table(pyarrow.table(columns), stream)
  files.write_bytes(path, stream.getvalue())


def test_batches_are_those_of_files_here(made):
  for split, *specs in made.values():
    here, there = (open_source(spec, split) for spec in specs)
    assert (there.distant, here.distant) == (True, False)
    assert (there.identity, there.class_names) == (here.identity, here.class_names)
    assert [there.labels(i) for i in range(0, 60, 7)] == [here.labels(i) for i in range(0, 60, 7)]
    for options in ({}, dict(start_step=5, hosts=2)):
      assert_equal(batches(there, **options), batches(here, **options))


@ONE
def test_a_path_is_recognised_by_what_is_there(made):
  for name, (_, _, spec) in made.items():
    path = spec.partition(":")[2]
    folder = path.removesuffix("/{0..1}.tar")
    assert [sources.recognised(path), sources.anywhere(path)] == [spec] * 2, name
    assert sources.recognised(folder) == f"{name}:{folder}"


@ONE
def test_what_cannot_be_opened(made, folder):
  out = "/".join([".."] * 9)
  files.write_text(folder / "list.csv", f"path,label\n{out}/x.jpg,x\n")
  on_a_disk = "is a URL, and only files and folders of this machine"
  for spec, message in {
    "gs://bucket/none": "there is no file or folder of that name",
    "hf:gs://bucket/data/wds": on_a_disk,
    "objectnet:gs://bucket/data/folder": on_a_disk,
    "tfds:gs://bucket/data/wds": r"has no dataset_info\.json",
    f"csv:{folder}/list.csv": "leads out of the bucket",
  }.items():
    with pytest.raises(ValueError, match=message):
      open_source(spec)


@ONE
def test_a_shard_that_is_not_there_is_refused_at_the_start(made, folder):
  split, here, _ = made["tfds"]
  files.copy(path_of(here.partition(":")[2]), folder)
  (shard,) = files.matching(folder, "*array_record*")
  files.remove(shard)
  with pytest.raises(SourceError, match=f'There is no file "{shard}": prepare'):
    open_source(f"tfds:{folder}", split)


@ONE
def test_a_dataset_is_found_by_its_name(made, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", "gs://bucket/data/tfds")
  split, _, spec = made["tfds"]
  found = open_source("tfds:some_digits", split)
  assert_same(found[3], open_source(spec, split)[3])
  assert Mixed([found, Subset(found, 3)]).distant


@ONE
def test_a_table_here_names_images_in_a_bucket(made, folder, tmp_path):
  table = tmp_path / "list.csv"
  url = "gs://bucket/data/csv/images"
  table.write_text(f"{url}/000.png,x\n{url}/001.png,y\n")
  source, whole = open_source(f"csv:{table}"), open_source(made["csv"][2])
  assert source.distant
  assert [source[i].image for i in range(2)] == [whole[i].image for i in range(2)]
  assert datasets.shared_images(source, whole).images == 2
  table.write_text(f"{url}/000.png,x\n{url}/none.png,y\n")
  said = r'1 of 2 images .* "gs://bucket/data/csv/images/none\.png"'
  with pytest.raises(SourceError, match=said):
    open_source(f"csv:{table}")
  write_table(tmp_path / "t.parquet", {"image": [f"{url}/000.png"], "label": ["x"]})
  source = open_source(f"parquet:{tmp_path}/t.parquet")
  assert (source.distant, source[0].image) == (True, whole[0].image)


@ONE
def test_a_table_names_images_that_do_not_change(folder, proxy):
  for number in range(3):
    files.write_bytes(folder / "i" / f"{number}.png", b"image %d" % number)
  rows = {"image": ["i/2.png", "i/0.png", "i/1.png"], "label": ["x", "y", "x"]}
  write_table(folder / "t.parquet", rows)
  source = open_source(f"parquet:{folder}/t.parquet")
  content = [b"image 2", b"image 0", b"image 1"]
  assert [source[i].image for i in range(3)] == content
  part = open_source(f"parquet:{folder}/t.parquet", "[50%:]")
  rows = [int(part.name(i).rpartition(" ")[2]) for i in range(len(part))]
  assert 0 < len(rows) < 3
  assert [part[i].image for i in range(len(part))] == [content[row] for row in rows]
  files.write_bytes(folder / "i" / "0.png", b"another")
  with pytest.raises(ChangedError):
    source[1]
  files.remove(folder / "i" / "0.png")
  with pytest.raises(ChangedError):
    source[1]
  with pytest.raises(SourceError, match=r'1 of the images .* is "gs://.*/i/0\.png"'):
    open_source(f"parquet:{folder}/t.parquet")
  write_table(folder / "t.parquet", {"image": [{"bytes": None, "path": "i/2.png"}], "label": ["x"]})
  with pytest.raises(SourceError, match="has no bytes, but the path gs://"):
    open_source(f"parquet:{folder}/t.parquet")[0]


def test_an_object_that_changes_or_goes_ends_the_run(made, folder, proxy):
  patterns = {"folder": ("0/*.png", 0), "wds": ("1.tar", 59), "tfds": ("*-of-*", 0)}
  for name in made.keys() & patterns:
    (pattern, row), (split, here, _) = patterns[name], made[name]
    path = path_of(here.partition(":")[2].removesuffix("/{0..1}.tar"))
    files.copy(path, copy := folder / name)
    below, _, last = pattern.rpartition("/")
    target = files.matching(copy / below, last)[0]
    content = files.read_bytes(target, most=10**7)
    source = open_source(f"{name}:{copy}", split)
    files.write_bytes(target, content[::-1])
    with pytest.raises(ChangedError, match="was changed or removed after it was opened"):
      source[row]
    files.remove(target)
    with pytest.raises(ChangedError):
      source[row]


@ONE
def test_requests_that_fail_are_made_again(made, proxy):
  for name in ("folder", "tfds", "parquet"):
    split, here, there = made[name]
    source = open_source(there, split)
    with proxy.faulty(0.2):
      assert_equal(batches(source), batches(open_source(here, split)))


@ONE
def test_an_image_that_cannot_be_read_is_left_out_and_a_bucket_ends_the_run(made, proxy, caplog):
  source = open_source(made["folder"][2])
  with proxy.refusing(503), caplog.at_level(logging.WARNING):
    (batch,) = train(source, steps=1, batch_size=2, cut=CUT)
  assert batch["mask"].tolist() == [0, 0]
  assert caplog.text.count("Broken image, left out of training: gs://bucket/data/folder/") == 2
  with proxy.refusing(403), pytest.raises(ValueError, match="permission denied"):
    train(source, steps=1, batch_size=2, cut=CUT)


@ONE
def test_what_was_read_is_kept_on_the_disk(made, proxy, tmp_path, monkeypatch):
  monkeypatch.setattr(byte_ranges, "COPIES", tmp_path)
  byte_ranges.keep(0.1)
  try:
    for name in ("folder", "wds", "tfds", "parquet"):
      split, here, there = made[name]
      every(open_source(there, split))
      source = open_source(there, split)
      proxy.count = 0
      assert_equal(batches(source), batches(open_source(here, split)))
      assert proxy.count == 0, name
    assert f'kept in "{tmp_path}": 0.00 GB now, 0.10 GB at most' in byte_ranges.kept()
  finally:
    byte_ranges.keep(0)
