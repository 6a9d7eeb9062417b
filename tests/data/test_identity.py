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
from vit_jax.data.sources import Example, Mixed, Subset, Unlabelled
from vit_jax.data.sources.base import SourceView

KINDS = ("folder", "csv", "unlabelled", "subset", "mix")


def picture(path, value):
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path)


def table(root, swapped=False):
  names = [f"{label}/{row}.bmp,{label}" for label in "ab" for row in range(5)]
  text = "\n".join(["path,label", *names])
  (root / "t.csv").write_text(text.replace("a/0.bmp,a", "a/0.bmp,b") if swapped else text)


@pytest.fixture
def photos(tmp_path):
  """A folder of ten pictures of the same size on disk, and a table of them."""
  root = tmp_path / "photos"
  for row in range(10):
    picture(root / "ab"[row % 2] / f"{row // 2}.bmp", 20 * row)
  table(root)
  return root


KINDS = {
  "folder": lambda root: open_source(f"folder:{root}"),
  "csv": lambda root: open_source(f"csv:{root / 't.csv'}"),
  "unlabelled": lambda root: Unlabelled(open_source(f"folder:{root}")),
  "subset": lambda root: Subset(open_source(f"folder:{root}"), 9),
  "mix": lambda root: Mixed([KINDS["folder"](root), KINDS["csv"](root)]),
}


def known(root, kind):
  return identity.of(KINDS[kind](root))


def exchanged(root):
  for before, after in ("ac", "ba", "cb"):
    (root / before).rename(root / after)


def longer(root):
  with open(root / "b" / "3.bmp", "ab") as file:
    file.write(b"0")


def renamed(before, after):
  return lambda root: (root / before).rename(root / after)


CHANGES = {
  "two folders exchanged": (exchanged, KINDS, "other content"),
  "one image": (lambda root: picture(root / "b" / "3.bmp", 7), KINDS, "other content"),
  "one size": (longer, KINDS, "other sizes"),
  "one more": (lambda root: picture(root / "a" / "9.bmp", 0), ["folder"], "10 -> 11 images"),
  "a name": (renamed("a/4.bmp", "a/5.bmp"), ["folder", "subset"], "other names"),
  "a label": (lambda root: table(root, swapped=True), ["csv", "mix"], "other names, labels"),
  "a class": (renamed("a", "c"), ["folder"], r"2 \('a', 'b'\) -> 2 "),
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


def test_one_size_is_seen_if_the_first_file_is_empty(photos):
  (photos / "a" / "0.bmp").write_bytes(b"")
  before = known(photos, "folder")
  longer(photos)
  assert identity.changes(before, known(photos, "folder")) == ["files of other sizes"]


@pytest.mark.parametrize(
  ("method", "number", "unknown"),
  [
    ("__getitem__", errno.EIO, "content"),
    ("size", errno.ESTALE, "sizes"),
    ("size", errno.EACCES, "sizes"),
  ],
)
def test_what_cannot_be_read_now_is_not_taken_for_a_change(photos, method, number, unknown):

  class Failing(SourceView):
    """A folder one of whose methods fails."""

  def failing(self, index):
    raise OSError(number, "cannot be read now")

  setattr(Failing, method, failing)
  before = known(photos, "folder")
  now = identity.of(Failing(open_source(f"folder:{photos}")))
  assert now == before._replace(**{unknown: ""})
  assert identity.changes(before, now) == identity.changes(now, before) == []


def test_of_many_images_some_are_read():
  class Many:
    class_names, identity, multi_label, read = (), "many", False, []
    __len__ = lambda self: 14_000_000
    size = lambda self, index: index + 1

    def __getitem__(self, index):
      self.read.append(index)
      return Example(b"x" * 2**20, (), "")

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
