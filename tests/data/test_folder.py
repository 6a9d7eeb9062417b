"""Folders of images: classes, names, parts."""

import pathlib
import shlex

import pytest

from tests.data.opened import every, open_source
from vit_jax.data import sources
from vit_jax.data.sources import Mixed, Subset


def write_folder(root: pathlib.Path) -> None:
  for name in ("b/2.JPG", "b/10.jpeg", "a/x.Png", "c/y.webp", "c/notes.txt", ".git/z.jpg"):
    (root / name).parent.mkdir(exist_ok=True, parents=True)
    (root / name).write_bytes(name.encode())
  (root / "README.md").write_text("not a class")


def test_folder_lists_images_of_sorted_classes(tmp_path):
  write_folder(tmp_path)
  source = open_source(f"folder:{tmp_path}")
  assert source.class_names == ("a", "b", "c")
  assert not source.multi_label
  seen = [(example.image.decode(), example.labels) for example in every(source)]
  assert seen == [("a/x.Png", (0,)), ("b/10.jpeg", (1,)), ("b/2.JPG", (1,)), ("c/y.webp", (2,))]
  assert source[2].name == str(tmp_path / "b" / "2.JPG")


def test_folder_errors(tmp_path):
  with pytest.raises(sources.SourceError, match="There is no folder"):
    open_source(f"folder:{tmp_path}/missing")
  with pytest.raises(sources.SourceError, match="has no folders inside"):
    open_source(f"folder:{tmp_path}")
  write_folder(tmp_path)
  with pytest.raises(sources.SourceError, match="have no split 'train'; set it to"):
    open_source(f"folder:{tmp_path}", "train")
  (tmp_path / "other").mkdir()
  (tmp_path / "other/1.tar").touch()
  message = r'other" has no \.jpg, \.jpeg, .*\.tiff.* Tar files of a WebDataset are named wds:'
  with pytest.raises(sources.SourceError, match=message):
    open_source(f"folder:{tmp_path}")


@pytest.mark.parametrize(
  "names",
  [
    ("train", "val"),
    ("Training_Set", "test_set"),
    ("train2017", "val2017", "docs"),
    ("seg_test", "seg_train"),
    ("test",),
  ],
)
def test_a_folder_of_splits_is_no_folder_of_classes(tmp_path, names):
  tmp_path = tmp_path / "my photos"
  for name in names:
    (tmp_path / name / "cat").mkdir(parents=True)
    (tmp_path / name / "cat/1.jpg").touch()
  with pytest.raises(sources.SourceError, match="are splits, not classes"):
    open_source(f"folder:{tmp_path}", "train")  # as many recipes have it
  with pytest.raises(sources.SourceError, match="are splits, not classes") as raised:
    open_source(f"folder:{tmp_path}")
  if len(names) == 2:
    train, other = sorted(names, key=lambda name: "train" not in name.lower())
    said = str(raised.value)
    words = shlex.split(said[said.index("--config") :].replace(";", " ; "))
    assert f"--config.data.train.source=folder:{tmp_path}/{train}" in words
    assert f"--config.evaluate.val.source=folder:{tmp_path}/{other}" in words
  assert len(open_source(f"folder:{tmp_path}", label_key="")) == len(names)


@pytest.mark.parametrize("names", [("train", "val"), ("train2017", "TEST"), ("train",)])
def test_splits_without_folders_of_classes_are_no_classes_either(tmp_path, names):
  for name in names:
    (tmp_path / name).mkdir()
    (tmp_path / name / "1.jpg").touch()
  with pytest.raises(sources.SourceError, match=r"are splits, not classes .*csv:FILE"):
    open_source(f"folder:{tmp_path}")


@pytest.mark.parametrize(
  "files", [("test_new/1.jpg", "test_old/2.jpg"), ("train/old/1.jpg", "car/2.jpg")]
)
def test_classes_may_be_called_like_splits(tmp_path, files):
  for name in files:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
  assert len(open_source(f"folder:{tmp_path}").class_names) == len(files)


def test_folders_in_class_folders_are_told(tmp_path):
  write_folder(tmp_path)
  (tmp_path / "b/more/3").mkdir(parents=True)
  (tmp_path / "b/more/3/4.jpg").touch()
  source = open_source(f"folder:{tmp_path}", "[:100%]")
  assert "'b/more/3/4.jpg' is of class 'b'" in source.notes[-1]
  assert source.notes == Subset(source, 2).notes


@pytest.mark.parametrize(
  ("before", "after"),
  [
    (["cat/1", "cat/2", "dog/3", "dog/4"], ["cat/1", "dog/2", "dog/3", "dog/4"]),
    (["cat/1", "cat/2", "dog/3"], ["cat/1", "dog/2", "dog/3"]),
    (["a/1", "b/2", "b/3", "c/4"], ["a/1", "b/2", "c/3", "c/4"]),
    (["a/x", "a/y", "a/z"], ["a/x/y", "a/z"]),  # subfolders and files
  ],
)
def test_the_identity_tells_which_class_a_file_is_in(tmp_path, before, after):
  opened = {}
  for name, files in (("before", before), ("after", after)):
    for file in files:
      (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
      (tmp_path / name / f"{file}.png").touch()
    spec = f"folder:{tmp_path / name}"
    opened[name] = open_source(spec), Subset(open_source(spec), 2), Mixed([open_source(spec)])
  for one, other in zip(opened["before"], opened["after"], strict=True):
    assert one.identity != other.identity


def write_classes(root: pathlib.Path, **counts: int) -> None:
  for name, count in counts.items():
    (root / name).mkdir(parents=True)
    for index in range(count):
      (root / name / f"{index:03}.png").touch()


def test_a_part_that_leaves_a_class_empty_names_the_class(tmp_path):
  write_classes(tmp_path, many=20, few=1)
  with pytest.raises(sources.SourceError, match=r'few" has 1 images, and none .* part \[:40%\]'):
    open_source(f"folder:{tmp_path}", "[:40%]")
