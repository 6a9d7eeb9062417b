"""Finding image files in a folder, reporting all others, and never blocking on special files."""

import contextlib
import os
import signal
import socket

import pytest

from tests.data.opened import open_source, tree
from vit_jax.config import RunError
from vit_jax.data import image_files, records
from vit_jax.data.sources import SourceError, subset
from vit_jax.data.sources.folder import Folder
from vit_jax.extras.sources import objectnet
from vit_jax.extras.sources.csv_file import Csv
from vit_jax.storage import files


@contextlib.contextmanager
def soon():
  """Fails the test if the context takes more than 5 seconds."""

  def late(*_):
    raise AssertionError("it waits")

  before = signal.signal(signal.SIGALRM, late)
  signal.setitimer(signal.ITIMER_REAL, 5)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def bound(path):
  """Makes a socket; its path may be longer than a socket address allows."""
  here = os.getcwd()
  os.chdir(path.parent)
  try:
    with socket.socket(socket.AF_UNIX) as one:
      one.bind(path.name)
  finally:
    os.chdir(here)


IRREGULAR = {
  "a FIFO": os.mkfifo,
  "a socket": bound,
  "a folder": os.mkdir,
  "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", IRREGULAR)
def test_only_regular_files_are_read_and_nothing_is_waited_for(tmp_path, kind):
  path = tmp_path / "x"
  IRREGULAR[kind](path)
  with soon(), pytest.raises(OSError, match=f"It is {kind}, not a file.*x'"):
    files.read_bytes(path, most=10)


def test_images_of_all_folders_below_in_the_order_of_their_paths(tmp_path):
  names = [f"{at}{i}{end}" for i, end in enumerate(image_files.SUFFIXES) for at in ("", "a/b/")]
  names += ["a/Z.TIFF", "b.d/x.JPeG", "é/ü.png"]
  found = image_files.find(tree(tmp_path, *names))
  assert found.names == sorted(names)
  assert found.left_out.in_words() == ""


def test_a_name_that_is_not_utf_8(tmp_path):
  name = os.fsdecode(b"c/\xff.png")
  (tmp_path / "c").mkdir()
  (tmp_path / name).write_bytes(b"x")
  source = Folder(str(tmp_path), split="")
  assert source[0].image == b"x"
  assert source[0].name == f"{tmp_path}/{name}"


def test_what_is_left_out_is_counted_by_reason(tmp_path):
  hidden = (".DS_Store", "in/._x.png", ".git/x.png")
  tree(tmp_path, "x.png", *hidden, "a.heic", "in/b.heic", "c.txt", "README")
  os.mkfifo(tmp_path / "in" / "pipe.png")
  bound(tmp_path / "socket.jpg")
  for name, target in (("gone", "nowhere.png"), ("zero", "/dev/zero"), ("self", "self.png")):
    (tmp_path / f"{name}.png").symlink_to(target)
  with soon():
    found = image_files.find(tmp_path)
  assert found.names == ["x.png"]
  assert found.left_out.counts() == {
    "not regular files": 4,
    "hidden": 3,
    "with the suffix '.heic'": 2,
    "with the suffix '.txt'": 1,
    "without a suffix": 1,
    "links to nowhere": 1,
  }
  words = found.left_out.in_words()
  assert words.startswith("4 not regular files (")
  assert "1 without a suffix ('README')" in words
  tree(tmp_path, *(f"{i}.a\n{i}" for i in range(50)), "y." + "z" * 200)
  words = image_files.find(tmp_path).left_out.in_words()
  assert words.endswith(", 51 others")
  assert "\n" not in words
  assert len(words) < 800


def test_links_are_followed_and_circles_come_to_an_end(tmp_path):
  tree(tmp_path, "store/1.png", "store/deep/2.png", "class/3.png", "class/z/4.png")
  (tmp_path / "class/5.png").symlink_to("../store/1.png")
  (tmp_path / "class/inner").symlink_to("../store")
  (tmp_path / "class/up").symlink_to("..")  # its folder "class" is already being read
  (tmp_path / "class/a").symlink_to("z")  # z is read under its own name, in any order
  found = image_files.find(tmp_path / "class")
  assert found.names == ["3.png", "5.png", "inner/1.png", "inner/deep/2.png", "z/4.png"]
  assert found.left_out.counts() == {"folders that are read already": 3}


def test_a_folder_says_what_it_leaves_out(tmp_path):
  images = [f"{c}/{i}.png" for c in "ab" for i in range(4)]
  tree(tmp_path, *images, "loose.png", "a/notes.txt", "b/c/.x", "c/.DS_Store")
  (tmp_path / "c/inner").mkdir()
  source = Folder(str(tmp_path), split="[:50%]")
  (note,) = source.notes
  assert (note,) == Folder(str(tmp_path), split="[50%:]").notes
  assert source.class_names == ("a", "b")
  assert note.startswith(f"Left out of {str(tmp_path)!r}: ")
  for words in ("1 in no class folder ('loose.png')", "'.txt' ('a/notes.txt')", "('b/c/.x')"):
    assert words in note
  assert "1 empty class folders ('c')" in note
  tree(tmp_path, "c/2.heic")
  with pytest.raises(SourceError, match=r'c" has no .*Left out: .*with the suffix .\.heic'):
    Folder(str(tmp_path), split="")


def shard(path):
  return records.Records([records.Span(str(path), 0, 1)], remedy="restore it")


def exclusions(path):
  return subset.read_exclusions(str(path), open_source("synthetic:2"))


@pytest.mark.parametrize(
  ("read", "error", "message"),
  [
    (exclusions, SourceError, "It is a FIFO, not a file"),
    (lambda path: Csv(str(path)), SourceError, "It is a FIFO, not a file"),
    (objectnet._text, SourceError, "It is a FIFO, not a file"),
    (lambda path: shard(path)[0], RunError, "it is not a regular file"),
  ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, read, error, message):
  os.mkfifo(tmp_path / "list")
  with soon(), pytest.raises(error, match=message):
    read(tmp_path / "list")


def test_an_image_that_becomes_a_fifo_is_not_waited_for(tmp_path):
  folder = Folder(str(tree(tmp_path / "images", "a/1.png", "b/2.png")), split="")
  (tmp_path / "list.csv").write_text("images/a/1.png,a\nimages/b/2.png,b\n")
  table = Csv(str(tmp_path / "list.csv"))
  (tmp_path / "images/a/1.png").unlink()
  os.mkfifo(tmp_path / "images/a/1.png")
  for source in (folder, table):
    with soon(), pytest.raises(OSError, match="It is a FIFO"):
      source[0]
    assert source[1].image == b"b/2.png"
