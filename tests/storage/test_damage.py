"""Damaged checkpoints: each kind is found, named and set aside."""

import errno
import os
import shutil

import numpy as np
import pytest

from tests.storage.states import flip_a_bit, restore, saved
from vit_jax.process import agreement
from vit_jax.storage import checkpoint, manifest
from vit_jax.storage.base import CannotReadError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
  monkeypatch.setattr(manifest, "SETTLED", 0.01)


def test_a_byte_changed_anywhere_in_any_file_is_found(tmp_path):
  saved(tmp_path, 7)
  folder = tmp_path / "checkpoints" / "7"
  rng = np.random.default_rng(0)
  assert not manifest.damage_of(folder)
  for path in [path for path in folder.rglob("*") if path.is_file()]:
    whole = path.read_bytes()
    places = {0, len(whole) - 1, *rng.integers(len(whole), size=8).tolist()}
    blanks = [i for i, byte in enumerate(whole) if byte in b" \n"][:2]
    changed = [(place, whole[place] ^ 1 << int(rng.integers(8))) for place in places]
    # What JSON does not tell from what was there.
    changed += [(place, ord("\t")) for place in blanks] + [(place, ord("\r")) for place in blanks]
    for place, byte in changed:
      path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
      assert manifest.damage_of(folder), (path, place, byte)
    path.write_bytes(whole)
  assert not manifest.damage_of(folder)


def largest(folder):
  return max((folder / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())


def change_class_names(folder):
  path = folder / "meta" / "metadata"
  path.write_text(path.read_text().replace("bee", "bug"))


def manifest_that_waits(folder):
  (folder / "manifest.json").unlink()
  os.mkfifo(folder / "manifest.json")


def no_folder(folder):
  shutil.rmtree(folder)
  folder.write_text("")


def copy_of_another_step(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.with_name("7"), folder)


MANIFESTS = [b"[]", b"null", b"3", b"{}", b'{"a\\nb": 3}', b"\xff", b"", b"[" * 10**5]
DAMAGES = {
  "a bit": flip_a_bit,
  "a byte less": lambda folder: os.truncate(largest(folder), largest(folder).stat().st_size - 1),
  "a file less": lambda folder: largest(folder).unlink(),
  "a file more": lambda folder: (folder / "state" / "extra").touch(),
  "no manifest": lambda folder: (folder / "manifest.json").unlink(),
  "other names": change_class_names,
  "a pipe": manifest_that_waits,
  "a huge manifest": lambda folder: os.truncate(folder / "manifest.json", 2**40),
  "no folder": no_folder,
  "another step": copy_of_another_step,
}
DAMAGES |= {
  f"{data[:9]}": lambda folder, data=data: (folder / "manifest.json").write_bytes(data)
  for data in MANIFESTS
}


@pytest.fixture(scope="module")
def steps_7_and_9(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  saved(folder, 7, 9)
  return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_told_in_one_line(tmp_path, steps_7_and_9, damage):
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  folder = tmp_path / "checkpoints" / "9"
  assert not checkpoint.damage_of(folder)
  DAMAGES[damage](folder)
  words = checkpoint.damage_of(folder)
  assert words
  assert words.isprintable()


@pytest.mark.parametrize("damage", [flip_a_bit, no_folder])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
  tmp_path, steps_7_and_9, damage, caplog
):
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  damage(tmp_path / "checkpoints" / "9")
  assert int(restore(tmp_path).step) == 7
  assert "checkpoints/9 IS DAMAGED" in caplog.text
  assert checkpoint.available(tmp_path) == [7]
  assert "\n" not in caplog.messages[-1]
  assert (tmp_path / "checkpoints" / "9.damaged").exists()
  saved(tmp_path, 9)  # its place is free again
  assert int(restore(tmp_path).step) == 9


def test_a_damaged_checkpoint_on_another_disk_than_the_run_is_set_aside_there(
  tmp_path, steps_7_and_9, monkeypatch
):
  rename = os.rename

  def on_one_disk(path, target):
    if os.path.realpath(os.path.dirname(path)) != os.path.realpath(os.path.dirname(target)):
      raise OSError(errno.EXDEV, "Invalid cross-device link")
    rename(path, target)

  shutil.copytree(steps_7_and_9 / "checkpoints", tmp_path / "disk")
  (tmp_path / "run").mkdir()
  (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "disk")
  flip_a_bit(tmp_path / "disk" / "9")
  monkeypatch.setattr(os, "rename", on_one_disk)
  assert int(restore(tmp_path / "run").step) == 7
  assert sorted(path.name for path in (tmp_path / "disk").iterdir()) == ["7", "9.damaged"]


def test_what_is_not_named_as_a_step_is_left_alone(tmp_path):
  saved(tmp_path, 7)
  names = ("²", "٣", "007", "-1", "x_5", "1e3", "notes.txt")
  others = [tmp_path / "checkpoints" / name for name in names]
  for path in others:
    path.mkdir()
  assert int(restore(tmp_path).step) == 7
  saved(tmp_path, 9)
  assert checkpoint.available(tmp_path) == [7, 9]
  assert checkpoint.find(tmp_path).name == "9"
  assert all(path.is_dir() for path in others)


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path):
  saved(tmp_path, 7, 9)
  for step in ("7", "9"):
    flip_a_bit(tmp_path / "checkpoints" / step)
  with pytest.raises(checkpoint.CheckpointError, match=r"steps \[9, 7\].* another --workdir"):
    restore(tmp_path)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_one_process_sums_each_file_and_each_about_as_many_bytes(tmp_path, steps_7_and_9, count):
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  folder = tmp_path / "checkpoints" / "9"

  def seen():
    return zip(*(manifest.part_of_damage(folder, i, count) for i in range(count)), strict=True)

  damages, names_and_sizes = seen()
  assert {*damages} == {""}
  for path in [p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"]:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    damages, now = seen()
    assert [one for one in damages if one] == [manifest.damage_of(folder)]
    assert {*now} == {*names_and_sizes}
    path.write_bytes(data)
  (folder / "meta" / "metadata").unlink()
  assert {*list(seen())[1]} != {*names_and_sizes}
  sizes = {f"{i}": 100 + i for i in range(40)}
  shares = [sum(sizes[n] for n in manifest._share(sizes, i, count)) for i in range(count)]
  assert sum(shares) == sum(sizes.values())
  assert max(shares) - min(shares) <= 140


def test_processes_that_see_other_files_sum_all_of_them(tmp_path, steps_7_and_9, monkeypatch):
  """Of two processes, the first one sums what only the other one should have summed."""
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  folder, asked = tmp_path / "checkpoints" / "9", []
  for path in [p for p in (folder / "state").rglob("*") if p.is_file()]:
    path.write_bytes(path.read_bytes()[::-1])

  def told(own):
    asked.append(own)
    return [own, "another\n\n"] if len(asked) == 1 else [own, own]

  monkeypatch.setattr(agreement, "allgather_str", told)
  monkeypatch.setattr(checkpoint.jax, "process_count", lambda: 2)
  first, every = manifest.part_of_damage(folder, 0, 2)[0], manifest.damage_of(folder)
  assert first != every
  assert checkpoint.damage_of(folder) == every


def test_a_process_that_cannot_read_its_share_ends_the_others(steps_7_and_9, monkeypatch):
  told = lambda own: [own, own.split("\n")[0] + "\nit is busy\n"]
  monkeypatch.setattr(agreement, "allgather_str", told)
  with pytest.raises(CannotReadError, match="process 1: it is busy"):
    checkpoint.damage_of(steps_7_and_9 / "checkpoints" / "9")
