"""Damaged checkpoints: each kind is found, named and set aside."""

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


def truncate(folder):
  path = max((folder / "state").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
  path.write_bytes(path.read_bytes()[:-1])


def remove(folder):
  next(p for p in (folder / "state").rglob("*") if p.is_file()).unlink()


def add(folder):
  (folder / "state" / "extra").write_text("")


def forget_manifest(folder):
  (folder / "manifest.json").unlink()


def change_class_names(folder):
  path = folder / "meta" / "metadata"
  path.write_text(path.read_text().replace("bee", "bug"))


def manifest_of(data):
  return lambda folder: (folder / "manifest.json").write_bytes(data)


def manifest_that_waits(folder):
  (folder / "manifest.json").unlink()
  os.mkfifo(folder / "manifest.json")


def huge_manifest(folder):
  with (folder / "manifest.json").open("wb") as file:
    file.truncate(2**40)


def no_folder(folder):
  shutil.rmtree(folder)
  folder.write_text("")


def copy_of_another_step(folder):
  shutil.rmtree(folder)
  shutil.copytree(folder.with_name("7"), folder)


MANIFESTS = [b"[]", b"null", b"3", b"{}", b'{"a\\nb": 3}', b"\xff", b"", b"[" * 10**5]
DAMAGES = [
  flip_a_bit,
  truncate,
  remove,
  add,
  forget_manifest,
  change_class_names,
  manifest_that_waits,
  huge_manifest,
  no_folder,
  copy_of_another_step,
  *map(manifest_of, MANIFESTS),
]


@pytest.fixture(scope="module")
def steps_7_and_9(tmp_path_factory):
  folder = tmp_path_factory.mktemp("whole")
  saved(folder, 7, 9)
  return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found_and_told_in_one_line(tmp_path, steps_7_and_9, damage):
  shutil.copytree(steps_7_and_9, tmp_path, dirs_exist_ok=True)
  assert not checkpoint.damage_of(tmp_path / "checkpoints" / "9")
  damage(tmp_path / "checkpoints" / "9")
  words = checkpoint.damage_of(tmp_path / "checkpoints" / "9")
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
  assert (tmp_path / "checkpoints-damaged" / "9").exists()
  saved(tmp_path, 9)  # its place is free again
  assert int(restore(tmp_path).step) == 9


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
  with pytest.raises(checkpoint.CheckpointError, match=r"steps \[9, 7\]"):
    restore(tmp_path)


def seen_by(count, folder):
  return [manifest.part_of_damage(folder, process, count) for process in range(count)]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_processes_sum_all_files_and_each_about_as_many_bytes(tmp_path, monkeypatch, count):
  saved(tmp_path, 9)
  folder, summed = tmp_path / "checkpoints" / "9", []
  digest = manifest._sum
  monkeypatch.setattr(manifest, "_sum", lambda path: (summed.append(path), digest(path))[1])
  assert {damage for damage, _ in seen_by(count, folder)} == {""}
  assert sorted(summed) == sorted(
    path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"
  )
  sizes = {f"{i}": 100 + i for i in range(40)}
  shares = [sum(sizes[n] for n in manifest._share(sizes, i, count)) for i in range(count)]
  assert sum(shares) == sum(sizes.values())
  assert max(shares) - min(shares) <= 140


def test_the_damage_that_any_process_finds_counts(tmp_path):
  saved(tmp_path, 9)
  folder = tmp_path / "checkpoints" / "9"
  whole = {seen for _, seen in seen_by(8, folder)}
  flip_a_bit(folder)
  damages = [damage for damage, _ in seen_by(8, folder) if damage]
  assert len(damages) == 1
  assert damages[0] == manifest.damage_of(folder)
  assert {seen for _, seen in seen_by(8, folder)} == whole  # which is of names and sizes
  (folder / "meta" / "metadata").unlink()
  assert {seen for _, seen in seen_by(8, folder)} != whole


def test_processes_that_see_other_files_sum_all_of_them(tmp_path, monkeypatch):
  saved(tmp_path, 9)
  folder, shares = tmp_path / "checkpoints" / "9", []
  look = manifest.part_of_damage
  monkeypatch.setattr(
    manifest, "part_of_damage", lambda *words: (shares.append(words[1:]), look(*words))[1]
  )
  told = lambda own: [own, "another" + own[len("another") :]] if len(shares) == 1 else [own] * 2
  monkeypatch.setattr(agreement, "allgather_str", told)
  monkeypatch.setattr(checkpoint.jax, "process_count", lambda: 2)
  monkeypatch.setattr(agreement, "broadcast_str", lambda words: words())
  assert not checkpoint.damage_of(folder)
  assert shares == [(0, 2), (0, 1)]


def test_a_process_that_cannot_read_its_share_ends_the_others(tmp_path, monkeypatch):
  saved(tmp_path, 9)
  folder = tmp_path / "checkpoints" / "9"
  told = lambda own: [own, own.split("\n")[0] + "\nit is busy\n"]
  monkeypatch.setattr(agreement, "allgather_str", told)
  with pytest.raises(CannotReadError, match="process 1: it is busy"):
    checkpoint.damage_of(folder)
