"""The functions that write files: whole files, growing files, moves, the lock."""

import errno
import os
import pathlib
import re
import resource

import pytest

from vit_jax.config import ConfigError
from vit_jax.process import text as texts
from vit_jax.storage import files
from vit_jax.storage.paths import inside, local_path, path_of, within


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
  path = tmp_path / "file"
  for before in (None, b"before"):
    with pytest.raises(KeyError), files.atomic_write(path) as partial:
      raise KeyError(pathlib.Path(partial).touch())
    assert (path.read_bytes() if path.exists() else None) == before
    files.write_bytes(path, b"before")
  files.write_text(path, "after")
  assert path.read_text() == "after"
  assert os.listdir(tmp_path) == ["file"]


def test_what_is_synced_is_brought_to_the_disk_if_its_file_system_can(tmp_path, monkeypatch):
  synced, fails = [], []

  def fsync(descriptor):
    synced.append(os.fstat(descriptor).st_ino)
    for number in fails:
      raise OSError(number, "no")

  monkeypatch.setattr(os, "fsync", fsync)
  path = tmp_path / "file"
  files.write_text(path, "text")
  files.sync(path)
  files.sync(tmp_path)
  assert synced == [path.stat().st_ino, path.stat().st_ino, tmp_path.stat().st_ino]
  fails[:] = [errno.EINVAL]
  files.sync(tmp_path)
  with pytest.raises(OSError, match="no"):
    files.sync(path)
  fails[:] = [errno.EIO]
  with pytest.raises(OSError, match="no"):
    files.sync(tmp_path)


def test_an_error_names_the_file_and_not_its_passing_name(tmp_path):
  with pytest.raises(FileNotFoundError, match=re.escape(f"'{tmp_path}/none/file'")):
    files.write_text(tmp_path / "none" / "file", "text")
  with pytest.raises(FileNotFoundError, match="'/other'"), files.atomic_write(tmp_path / "file"):
    os.stat("/other")


def test_a_table_reads_back(tmp_path):
  rows = [["a", "b,c"], ["line\nbreak", '"quoted"'], ["old\rbreak", "both\r\n"], ["", "\r"]]
  files.write_csv(tmp_path / "t.csv", rows)
  with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
    assert list(texts.csv_rows(file.read())) == rows
  files.write_csv(tmp_path / "t.csv", [["\udcff"]])  # a byte of a name that is no text
  assert (tmp_path / "t.csv").read_text() == "\\udcff\n" == files.as_written("\udcff\n")


def test_what_is_set_aside_replaces_nothing(tmp_path):
  found = []
  for text in "abc":
    files.write_text(tmp_path / "file", text)
    found.append(files.set_aside(tmp_path / "file", tmp_path / "aside").name)
  assert found == ["aside", "aside-again", "aside-again-again"]
  assert [(tmp_path / name).read_text() for name in found] == ["a", "b", "c"]


@pytest.mark.parametrize("path", ["/a", "a:b/c", "c:/d", "a/b://c", "runs/2026-01-01T00:00/x"])
def test_what_is_a_path_of_this_machine(path):
  assert str(local_path(path)) == path.replace("//", "/")


MOUNT = "is a URL.*mount the storage"
NO_KIND = r'"[\w+]+:", which is no kind of storage.*gs:// or s3://'
UPWARDS = r'has "\.\.", which means nothing in a bucket'
REFUSED = [
  *((local_path, url, f"{url} {MOUNT}") for url in ("gs://b/run", "s3://b", "http://a/b", "gs:/d")),
  (local_path, "file:///c", f"file:///c {MOUNT}"),
  *((local_path, path, NO_KIND) for path in ("tar:/x.tar", "az:/bucket/run", "runs+x:/a")),
  *((path_of, url, UPWARDS) for url in ("gs://b/run/..", "s3://b/../c", "gs://..")),
]


@pytest.mark.parametrize(("read", "path", "message"), REFUSED)
def test_paths_that_are_refused(read, path, message):
  with pytest.raises(ConfigError, match=message):
    read(path)


@pytest.mark.parametrize("text", ["/etc/x.png", "../../x.png", "/../x.png", "a/../../../x.png"])
def test_a_table_in_a_bucket_names_no_file_of_this_machine(text):
  with pytest.raises(ConfigError, match="leads out of the bucket"):
    within(path_of("gs://bucket/data"), text)


@pytest.mark.parametrize(
  ("content", "error", "message"),
  [
    (b"{", ValueError, "Expecting"),
    (b"\xff", ValueError, "decode"),
    (b"[" * 100_000, ValueError, "nested too deeply"),
    (b"[1]", ValueError, "not a JSON object"),
    (b'"text"', ValueError, "not a JSON object"),
    (b" " * 100_001, OSError, r"larger than 100,000 bytes \(100,001\)"),
  ],
)
def test_what_is_no_json_object(tmp_path, content, error, message):
  path = tmp_path / "x.json"
  path.write_bytes(content)
  with pytest.raises(error, match=message):
    files.read_json(path, most=100_000)


def test_of_a_piece_that_could_not_be_written_no_half_is_left(tmp_path):
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  file = files.append(tmp_path / "file")
  file.add(b"one ")
  resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))  # Python ignores the signal
  try:
    with pytest.raises(OSError, match="File too large"):
      file.add(b"two ")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
  assert (tmp_path / "file").read_bytes() == b"one "
  file.add(b"three")
  file.close()
  assert (tmp_path / "file").read_bytes() == b"one three"


def test_a_file_that_is_gone_or_another_is_noticed(tmp_path):
  file = files.append(tmp_path / "file")
  (tmp_path / "file").rename(tmp_path / "elsewhere")
  with pytest.raises(FileNotFoundError):
    file.add(b"one")
  (tmp_path / "file").write_bytes(b"")
  with pytest.raises(FileNotFoundError, match="replaced by another file"):
    file.add(b"two")
  (tmp_path / "elsewhere").replace(tmp_path / "file")
  file.add(b"three")
  file.close()
  assert (tmp_path / "file").read_bytes() == b"three"


@pytest.mark.parametrize(
  "name",
  [
    *("", "..", ".", "/", "/etc/x", "a/", "a//b", "a/../b", "a/./b", "../a", "a/..", "C:/x", "c:x"),
    *("a/D:/x", "a\\..\\b", "\\\\host\\x", "a\0b", "a" * 256, "a/" * 600 + "b", "ß" * 128),
  ],
)
def test_a_name_from_elsewhere_that_could_lead_out_of_a_folder_is_refused(tmp_path, name):
  (tmp_path / "from").mkdir()
  (tmp_path / "from" / "whole").write_text("x")
  with pytest.raises(ConfigError, match=r"cannot be the name of a file in a folder"):
    files.copy_files(tmp_path / "from", tmp_path / "to", ["whole", name])
  assert not (tmp_path / "to").exists()  # nothing, not even what comes before it


@pytest.mark.parametrize("name", ["a", "..a", "a..", "...", ".a/b", "a b/größe", "ab:c", "a" * 255])
def test_other_names_are_those_of_files_in_a_folder(tmp_path, name):
  assert inside(tmp_path, name) == tmp_path / name


def test_the_current_folder_has_a_lock(tmp_path, monkeypatch):
  (tmp_path / "here").mkdir()
  monkeypatch.chdir(tmp_path / "here")
  with files.one_writer(pathlib.Path()):
    assert (tmp_path / "here.lock").exists()
    with (
      pytest.raises(ConfigError, match="by another command"),
      files.one_writer(tmp_path / "here"),
    ):
      pass
  assert not (tmp_path / "here.lock").exists()
