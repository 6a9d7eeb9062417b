"""Copies on the disk: bounded, checked, and shared by processes."""

import hashlib
import os
import threading

import pytest

from tests.data import numbered
from vit_jax.config import Data, Dataset
from vit_jax.data import byte_ranges, datasets


@pytest.fixture
def kept(tmp_path):
  return byte_ranges.Copies(tmp_path / "copies", 16 * 1000)


def files_of(kept):
  return [file for file in kept.root.glob("*/*") if file.name != "total"]


def read(kept, name, size=50):
  """The content, and whether it was fetched."""
  fetched = []
  content = kept.read(name, size, lambda: fetched.append(1) or name.encode().ljust(size, b"."))
  assert content == name.encode().ljust(size, b".")
  return bool(fetched)


def test_what_was_read_is_read_from_its_copy(kept):
  assert [read(kept, name) for name in "aabba"] == [True, False, True, False, False]
  again = byte_ranges.Copies(kept.root, kept.most)  # of another process
  assert not read(again, "a")
  assert kept.bytes() == again.bytes() == 2 * 54


def test_a_copy_that_is_damaged_is_made_again(kept, caplog):
  read(kept, "a")
  (file,) = files_of(kept)
  whole = file.read_bytes()
  for data in (whole[:-1], whole + b"x", b"", whole[:20] + b"x" + whole[21:], b"xxxx" + whole[4:]):
    file.write_bytes(data)
    assert read(kept, "a")
    assert not read(kept, "a")
  assert caplog.text.count("The copy of a in") == 5
  assert kept.read("a", 49, lambda: b"another size") == b"another size"


def test_the_least_recently_used_go_first(kept):
  """The names are of one of the 16 folders, which has room for 18 copies of 54 bytes."""
  hashes = {f"{i}": hashlib.sha256(b"%d" % i).hexdigest() for i in range(999)}
  names = [name for name, digest in hashes.items() if digest[0] == "0"][:19]
  ages = [(5 * place + 3) % 18 for place in range(18)]  # in another order than they are written
  for name, age in zip(names, ages, strict=False):
    assert read(kept, name)
    os.utime(kept.root / "0" / hashes[name][1:40], ns=(age, age))
  oldest = [names[ages.index(age)] for age in range(18)]
  assert not read(kept, oldest[0])  # used now
  found = [read(kept, name) for name in (names[18], oldest[0], oldest[17], oldest[1])]
  assert found == [True, False, False, True]
  assert kept.bytes() <= 1000


def test_all_files_together_are_bounded_also_of_several_writers(kept):
  def write(first):
    own = byte_ranges.Copies(kept.root, kept.most)
    for number in range(first, 600, 3):
      read(own, f"{number}", size=90)

  threads = [threading.Thread(target=write, args=(first,)) for first in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  sizes = sum(file.stat().st_size for file in files_of(kept))
  assert kept.most / 2 < sizes <= kept.bytes() <= kept.most
  for folder in kept.root.iterdir():
    (folder / "total").write_bytes(b"")  # a crash between two writes
  for number in range(1000, 1400):
    read(kept, f"{number}", size=90)
  assert sum(file.stat().st_size for file in files_of(kept)) <= kept.most


def test_what_is_larger_than_an_eighth_of_a_folder_is_not_kept(kept):
  assert read(kept, "a", size=126)
  assert read(kept, "a", size=126)
  assert not kept.root.exists()


def test_a_disk_that_cannot_be_written_is_told_once(kept, caplog):
  kept.root.parent.mkdir(exist_ok=True)
  kept.root.write_text("a file")
  assert [read(kept, name) for name in "aab"] == [True, True, True]
  assert caplog.text.count("No further images from buckets are kept on the disk: ") == 1


def test_the_first_lines_of_a_run_tell_what_is_kept(tmp_path, monkeypatch):
  source = numbered.numbered(3)
  lines = lambda: datasets.notes([datasets.NamedDataset("config.data.train", Dataset(), source)])
  monkeypatch.setenv("HOME", str(tmp_path))
  datasets.opener_of(Data(bucket_cache=2.0))
  assert lines() == []  # of images on this machine nothing is kept
  source.distant = True
  kept = f'kept in "{tmp_path}/.cache/vit_jax/buckets": 0.00 GB now, 2.00 GB at most.'
  assert lines() == [f"Images from buckets are {kept}"]
  datasets.opener_of(Data())
  assert lines() == []
