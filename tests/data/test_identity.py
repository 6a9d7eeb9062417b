"""A dataset is told from others by its names, labels, sizes and content, wherever it lies."""

import errno
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.data.opened import open_source
from vit_jax.data import identity
from vit_jax.data.identity import Identity
from vit_jax.data.sources import Mixed, Subset, Unlabelled

KINDS = ("folder", "csv", "unlabelled", "subset", "mix")


def picture(path, value):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path):
  """A folder of ten pictures of the same size on disk, and a table of them."""
  root = tmp_path / "photos"
  for row in range(10):
    picture(root / "ab"[row % 2] / f"{row // 2}.bmp", 20 * row)
  table(root)
  return root


def table(root, swapped=False):
  names = [f"{label}/{row}.bmp,{label}" for label in "ab" for row in range(5)]
  text = "\n".join(["path,label", *names])
  (root / "t.csv").write_text(text.replace("a/0.bmp,a", "a/0.bmp,b") if swapped else text)


def known(root, kind):
  folder, listed = (
    lambda spec=spec: open_source(spec) for spec in (f"folder:{root}", f"csv:{root / 't.csv'}")
  )
  sources = {
    "folder": folder,
    "csv": listed,
    "unlabelled": lambda: Unlabelled(folder()),
    "subset": lambda: Subset(folder(), 9),
    "mix": lambda: Mixed([folder(), listed()]),
  }
  return identity.of(sources[kind]())


def exchanged(root):
  (root / "a").rename(root / "c")
  (root / "b").rename(root / "a")
  (root / "c").rename(root / "b")


def longer(path):
  path.write_bytes(path.read_bytes() + b"0")


CHANGES = {
  "two folders exchanged": (exchanged, KINDS, "other content"),
  "one image": (lambda root: picture(root / "b" / "3.bmp", 7), KINDS, "other content"),
  "one size": (lambda root: longer(root / "b" / "3.bmp"), KINDS, "other sizes"),
  "one more": (lambda root: picture(root / "a" / "9.bmp", 0), ("folder",), "10 -> 11 images"),
  "a name": (
    lambda root: (root / "a" / "4.bmp").rename(root / "a" / "5.bmp"),
    ("folder", "subset"),
    "other names",
  ),
  "a label": (lambda root: table(root, swapped=True), ("csv", "mix"), "other names, labels"),
  "a class": (lambda root: (root / "a").rename(root / "c"), ("folder",), r"2 \('a', 'b'\) -> 2 "),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_and_a_moved_folder_is_the_same(photos, tmp_path, change):
  alter, kinds, words = CHANGES[change]
  before = {kind: known(photos, kind) for kind in kinds}
  shutil.copytree(photos, tmp_path / "elsewhere")
  for kind in kinds:
    assert identity.changes(before[kind], known(tmp_path / "elsewhere", kind)) == []
  alter(photos)
  for kind in kinds:
    (said,) = identity.changes(before[kind], known(photos, kind))
    assert re.search(words, said), (kind, said)


def test_an_image_that_cannot_be_read_now_is_not_taken_for_a_change(photos, monkeypatch):
  source = open_source(f"folder:{photos}")
  before = identity.of(source)

  def failing(_, index):
    raise OSError(errno.EIO, "Input/output error")

  monkeypatch.setattr(type(source), "__getitem__", failing)
  monkeypatch.setattr(identity.retry_reads, "PAUSES", ())
  now = identity.of(source)
  assert now.content == ""
  assert identity.changes(before, now) == identity.changes(now, before) == []


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EACCES])
def test_a_size_that_cannot_be_read_now_is_not_taken_for_a_change(photos, monkeypatch, number):
  before = known(photos, "folder")
  source = open_source(f"folder:{photos}")

  def size(index):
    raise OSError(number, "cannot be read now")

  monkeypatch.setattr(source, "size", size)
  now = identity.of(source)
  assert now.sizes == ""
  assert now.content == before.content
  assert identity.changes(before, now) == []
  assert identity.changes(now, before) == []


def test_of_many_images_some_are_read(monkeypatch):
  class Many:
    class_names, identity, multi_label, read = (), "many", False, []

    def __len__(self):
      return 14_000_000

    def __getitem__(self, index):
      self.read.append(index)
      return type("Example", (), {"image": b"x" * 2**20})

    def size(self, index):
      return index + 1

  many = Many()
  assert identity.of(many).images == 14_000_000
  assert 32 <= len(many.read) <= 64  # no more than 32 MB or so
  assert max(np.diff(np.sort(many.read))) < 14_000_000 / 4  # of all parts


def test_it_is_read_as_it_is_written():
  one = Identity(3, "2 ('a', 'b')", "n", "s", "c")
  plain = json.loads(json.dumps({"config.data.train": one._asdict()}))
  assert identity.read_identities(plain) == {"config.data.train": one}
  assert identity.read_identities(None) == {}
  for values in (3, {"x": 3}, {"x": {"images": 3}}, [1]):
    with pytest.raises(ValueError, match="data are not described"):
      identity.read_identities(values)
