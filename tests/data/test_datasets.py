"""The table of a run's data, and what it says of files that are left out."""

import dataclasses

from tests.data.opened import tree
from vit_jax.config import Dataset
from vit_jax.data import datasets
from vit_jax.data.sources.subset import write_exclusions


def test_the_table_has_every_dataset_and_each_note_once(tmp_path):
  names = ("a/1.png", "a/2.png", "b/3.png", "b/4.png", "b/5.heic", ".DS_Store")
  folder = f"folder:{tree(tmp_path / 'in', *names)}"
  opener = datasets.Opener(max_pixels=1, threads=0, allow_overlap=False)
  write_exclusions(tmp_path / "out.txt", opener.source(Dataset(folder)), [0])
  opener.open("config.data.train", Dataset(folder, "[:50%]"))
  opener.open("config.evaluate.val", Dataset(folder, exclude=str(tmp_path / "out.txt")))
  opener.open("config.evaluate.x", Dataset("digits", "test", label_key=""))
  head, *rows, note = datasets.summary_table(opener.opened).splitlines()
  assert head.split() == ["data", "source", "images", "classes"]
  assert [row.split() for row in rows] == [
    ["data.train", folder, "[:50%]", "2", "2"],
    ["evaluate.val", folder, f"exclude={tmp_path}/out.txt", "3", "2"],
    ["evaluate.x", "digits", "test", "360", "-"],
  ]
  assert note.startswith(f"Left out of '{tmp_path}/in': ")
  assert "1 hidden ('.DS_Store')" in note
  assert "1 with the suffix '.heic' ('b/5.heic')" in note


def test_words_tell_which_images_of_a_source():
  whole = Dataset("folder:photos", "[:90%]")
  part = dataclasses.replace(whole, subset=100, exclude="copies.txt")
  assert datasets.in_words(whole) == "folder:photos [:90%]"
  assert datasets.in_words(part) == "folder:photos [:90%] subset=100 exclude=copies.txt"
