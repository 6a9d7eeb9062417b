"""WebDataset: patterns, members, the index, and what is refused."""

import io
import json
import os
import subprocess
import tarfile

import pytest

from tests.data.opened import every, open_source
from vit_jax.data import datasets
from vit_jax.data.sources import SourceError
from vit_jax.extras.sources import webdataset
from vit_jax.storage.base import ChangedError


@pytest.fixture(autouse=True)
def indices(tmp_path, monkeypatch):
  monkeypatch.setattr(webdataset, "INDICES", tmp_path / "indices")
  return tmp_path / "indices"


def write(path, members, **options):
  """Writes a tar file of {name: bytes}."""
  path.parent.mkdir(exist_ok=True, parents=True)
  with tarfile.open(path, "w", **options) as tar:
    for name, data in members:
      header = tarfile.TarInfo(name)
      header.size = len(data)
      tar.addfile(header, io.BytesIO(data))
  return path


def pairs(first, count):
  """Members of images 0.jpg and labels 0.cls and so on."""
  for i in range(first, first + count):
    yield f"{i}.jpg", b"image %d" % i
    yield f"{i}.cls", b"%d\n" % (i % 2)


def labels(source):
  return [[source.class_names[label] for label in source[i].labels] for i in range(len(source))]


@pytest.mark.parametrize(
  ("pattern", "names"),
  [
    ("a{08..11}.tar", ["a08.tar", "a09.tar", "a10.tar", "a11.tar"]),
    ("{8..10}", ["8", "9", "10"]),
    ("{b,a}/{0..1}", ["b/0", "b/1", "a/0", "a/1"]),
    ("{a}{}", ["a"]),
    ("{2..0}", ["2", "1", "0"]),
    ("{11..08}", ["11", "10", "09", "08"]),
    ("{0..10}", [str(i) for i in range(11)]),
    ("{00..127}", [f"{i:03}" for i in range(128)]),
    ("{099..1}", [f"{i:03}" for i in range(99, 0, -1)]),
  ],
)
def test_braces_are_those_of_a_shell(pattern, names):
  assert list(webdataset._without_braces(pattern)) == names


def test_files_of_a_folder_are_sorted_and_splits_are_in_their_names(tmp_path):
  for name, first in (("train-1", 4), ("train-0", 0), ("val-0", 8)):
    write(tmp_path / f"{name}.tar", pairs(first, 4))
  train, val = (open_source(f"wds:{tmp_path}", split) for split in ("train", "val"))
  assert [example.image for example in every(train)] == [b"image %d" % i for i in range(8)]
  assert len(open_source(f"wds:{tmp_path}", "train[:50%]")) == 4
  assert datasets.shared_images(train, val) is None
  assert datasets.shared_images(train, open_source(f"wds:{tmp_path}/train-{{1,0}}.tar")).images == 8
  with pytest.raises(SourceError, match="of these splits: train, val; name one, not ''"):
    open_source(f"wds:{tmp_path}")


def test_files_without_a_split_are_told(tmp_path):
  for name in ("train-0", "part-1"):
    write(tmp_path / f"{name}.tar", pairs(0, 2))
  (note,) = open_source(f"wds:{tmp_path}", "train").notes
  assert note == f"Not used of {str(tmp_path)!r}: 'part-1.tar'."


def test_files_are_found_behind_links_and_hidden_ones_are_told(tmp_path):
  """macOS writes ._0.tar beside 0.tar."""
  write(tmp_path / "elsewhere/1.tar", pairs(2, 2))
  write(tmp_path / "shards/0.tar", pairs(0, 2))
  (tmp_path / "shards/inner").symlink_to(tmp_path / "elsewhere")
  (tmp_path / "shards/inner/up").symlink_to(tmp_path / "shards")
  (tmp_path / "shards/._0.tar").write_bytes(b"of macOS")
  (tmp_path / "shards/.notes").write_bytes(b"")
  source = open_source(f"wds:{tmp_path}/shards")
  assert [example.image for example in every(source)] == [b"image %d" % i for i in range(4)]
  (note,) = source.notes
  assert note == f"Left out of '{tmp_path}/shards': 1 hidden ('._0.tar')."


def test_labels_are_fields_of_json(tmp_path):
  def members(values):
    for i, value in enumerate(values):
      yield f"in/{i}.JPG", b"image"
      yield f"in/{i}.json", json.dumps({"label": value, "kind": ["x", i]}).encode()

  spec = f"wds:{write(tmp_path / 'a.tar', members(['b', 'a', 10]))}"
  assert labels(open_source(spec)) == [["b"], ["a"], ["10"]]
  several = open_source(spec, label_key="kind")
  assert several.multi_label
  assert labels(several) == [["x", "0"], ["x", "1"], ["x", "2"]]
  for key in ("other", "jpg.json"):
    with pytest.raises(SourceError, match=f"no name or number in the field '{key}' of in/0.json"):
      open_source(spec, label_key=key)


def test_several_images_of_an_example_are_chosen_by_extension(tmp_path):
  members = [("0.left.png", b"l"), ("0.right.png", b"r"), ("0.txt", b" two words\n")]
  spec = f"wds:{write(tmp_path / 'a.tar', members)}"
  with pytest.raises(SourceError, match=r"several images of '0': .* name one by image_key"):
    open_source(spec)
  source = open_source(spec, image_key="right.png", label_key="txt")
  assert (source[0].image, source.class_names) == (b"r", ("two words",))


def test_extensions_may_have_capitals(tmp_path):
  members = [("0.PNG", b"p"), ("0.JPG", b"j"), ("0.CLS", b"a"), ("0.json", b'{"Kind": "b"}')]
  spec = f"wds:{write(tmp_path / 'a.tar', members)}"
  source = open_source(spec, image_key="JPG", label_key="CLS")
  assert (source[0].image, source.class_names) == (b"j", ("a",))
  assert open_source(spec, image_key="Png", label_key="Kind").class_names == ("b",)


def test_an_index_is_made_once_and_again_when_the_file_changes(tmp_path, indices, monkeypatch):
  path = write(tmp_path / "a.tar", pairs(0, 3), format=tarfile.PAX_FORMAT)
  first = open_source(f"wds:{path}")
  before = path.stat()
  path.write_bytes(b"no header".ljust(512) + path.read_bytes()[512:])  # which is not read again
  os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
  again = open_source(f"wds:{path}")
  assert (again.identity, again[2]) == (first.identity, first[2])
  write(path, pairs(2, 3))
  with pytest.raises(ChangedError, match=r"a\.tar\" was changed or removed after it was opened"):
    first[0]
  assert open_source(f"wds:{path}")[0].image == b"image 2"
  (kept,) = indices.iterdir()
  kept.write_bytes(kept.read_bytes()[:-30])
  assert open_source(f"wds:{path}")[0].image == b"image 2"
  monkeypatch.setattr(webdataset, "INDICES", tmp_path / "a.tar/no folder")
  assert open_source(f"wds:{path}")[0].image == b"image 2"


def test_long_and_odd_names(tmp_path):
  long = f"{'d' * 90}/{'n' * 150}"
  for number in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    path = write(tmp_path / f"{number}.tar", [(f"{long}.jpg", b"x"), (f"{long}.cls", b"\xc3\xa9")])
    source = open_source(f"wds:{path}")
    assert (source[0].image, source.class_names) == (b"x", ("\xe9",))


def test_what_is_no_example_is_told(tmp_path):
  others = [("README", b"text"), (".hidden", b""), ("7.cls", b"1"), ("x/__index__", b"")]
  source = open_source(f"wds:{write(tmp_path / '0.tar', [*pairs(0, 2), *others])}")
  assert len(source) == 2
  (note,) = source.notes
  assert (
    "3 members that are not KEY.EXTENSION ('README'), 1 examples without an image ('7')" in note
  )
  write(tmp_path / "1.tar", [])
  assert '1 files have no examples ("' in open_source(f"wds:{tmp_path}/{{0..1}}.tar").notes[1]


def test_links_lead_to_the_members_that_hold_the_bytes(tmp_path):
  path = tmp_path / "a.tar"
  (tmp_path / "in").mkdir()
  (tmp_path / "in/0.jpg").write_bytes(b"image 0")
  os.link(tmp_path / "in/0.jpg", tmp_path / "in/1.jpg")
  (tmp_path / "in/2.jpg").symlink_to("0.jpg")
  (tmp_path / "in/3.jpg").symlink_to("/nowhere")
  with open(tmp_path / "in/4.jpg", "wb") as sparse:
    sparse.truncate(2**20)
  for i in range(5):
    (tmp_path / f"in/{i}.cls").write_bytes(b"x")
  subprocess.run(["tar", "-cSf", path, "in"], cwd=tmp_path, check=True)
  source = open_source(f"wds:{path}")
  assert [example.image for example in every(source)] == [b"image 0"] * 3
  (note,) = source.notes
  for reason in ("1 links to members that are not there ('in/3.jpg')", "1 sparse files"):
    assert reason in note


@pytest.mark.parametrize("cut", [100, 512, 700, 1536, 2048, 2100])
def test_a_file_that_is_cut_off_is_refused(tmp_path, cut):
  path = write(tmp_path / "a.tar", pairs(0, 2))
  path.write_bytes(path.read_bytes()[:cut])
  with pytest.raises(SourceError, match=r"a\.tar\" (cannot be read as a tar file|has no label)"):
    open_source(f"wds:{path}")


DOTS = [("a.1.jpg", b"1"), ("a.1.cls", b"x"), ("a.2.jpg", b"2"), ("a.2.cls", b"x")]
VECTORS = b'{"label": [0, 1, 0]}', b'{"label": [true, true]}'


@pytest.mark.parametrize(
  ("members", "message"),
  [
    ([("a.jpg", b"1"), ("a.JPG", b"2")], "has the member 'a.JPG' twice"),
    ([("a.jpg", b"1"), ("a.txt", b"cat")], r"no label of 'a', which has \['jpg', 'txt'\]"),
    (DOTS, "several images of 'a'.*a key ends at the first dot"),
    (DOTS[:2], "no label of 'a'.*a key ends at the first dot"),
    *(([("0.jpg", b"1"), ("0.json", one)], r"a\.tar\": row 0 .*multi-hot") for one in VECTORS),
    ([], "hold no examples with images"),
  ],
)
def test_wrong_members(tmp_path, members, message):
  with pytest.raises(SourceError, match=message):
    open_source(f"wds:{write(tmp_path / 'a.tar', members)}")


def test_wrong_files(tmp_path):
  damaged = write(tmp_path / "damaged.tar", pairs(0, 4))
  data = bytearray(damaged.read_bytes())
  data[2 * 1024 + 3] ^= 1  # the name of the third member
  damaged.write_bytes(data)
  with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
    tar.add(damaged)
  os.mkfifo(tmp_path / "fifo.tar")
  (tmp_path / "empty").mkdir()
  for name, message in (
    ("damaged.tar", "at byte 2048 is neither a member nor"),
    ("x.tar.gz", "cannot be read as a tar file: .*; unpack compression first"),
    ("fifo.tar", "cannot be read as a tar file: .*FIFO"),
    ("{0..2}.tar", r'3 of the 3 files of .* do not exist, the first is ".*/0\.tar"'),
    ("gone", "1 of the 1 files of"),
    ("empty", r"has no \*\.tar files"),
  ):
    with pytest.raises(SourceError, match=message):
      open_source(f"wds:{tmp_path}/{name}")


def test_an_index_is_of_the_file_that_was_named(tmp_path, indices, monkeypatch):
  path, made = write(tmp_path / "0.tar", pairs(0, 2)), webdataset._made

  def replaced(*args):
    index = made(*args)
    write(path, pairs(5, 3))
    return index

  monkeypatch.setattr(webdataset, "_made", replaced)
  with pytest.raises(ChangedError):
    open_source(f"wds:{path}")
  assert not indices.exists()
