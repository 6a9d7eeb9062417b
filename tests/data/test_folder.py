"""Folders of images: classes, names, parts."""

import pytest

from tests.data.opened import every, open_source, tree
from vit_jax.data import sources
from vit_jax.data.sources import Mixed, Subset

IMAGES = ("b/2.JPG", "b/10.jpeg", "a/x.Png", "c/y.webp", "c/notes.txt", ".git/z.jpg", "README.md")


def test_folder_lists_images_of_sorted_classes(tmp_path):
  source = open_source(f"folder:{tree(tmp_path, *IMAGES)}")
  assert source.class_names == ("a", "b", "c")
  assert not source.multi_label
  seen = [(example.image.decode(), example.labels) for example in every(source)]
  assert seen == [("a/x.Png", (0,)), ("b/10.jpeg", (1,)), ("b/2.JPG", (1,)), ("c/y.webp", (2,))]
  assert source[2].name == source.name(2) == str(tmp_path / "b" / "2.JPG")


@pytest.mark.parametrize(
  "names",
  [
    ("train", "val"),
    ("Training_Set", "test_set"),
    ("train2017", "val2017", "docs"),
    ("seg_test", "seg_train"),
    ("trainset", "testset"),
    ("trainval", "test"),
    ("test",),
  ],
)
def test_a_folder_of_splits_is_no_folder_of_classes(tmp_path, names):
  folder = tree(tmp_path / "my photos", *(f"{name}/cat/1.jpg" for name in names))
  for split in ("", "train"):  # which many recipes have
    with pytest.raises(sources.SourceError, match="are splits, not classes") as raised:
      open_source(f"folder:{folder}", split)
  inside = sorted(name for name in names if name != "docs")
  places = " or ".join(f"'folder:{folder}/{name}'" for name in inside)
  assert str(raised.value).endswith(f"Name one split: {places}.")
  assert len(open_source(f"folder:{folder}", label_key="")) == len(names)


@pytest.mark.parametrize("beside", [("Test/1.png", "Meta/1.png"), ("val/1.png", "bus/2.png")])
def test_a_split_of_classes_is_told_whatever_lies_beside_it(tmp_path, beside):
  folder = tree(tmp_path, "Train/0/1.png", "Train/1/1.png", *beside)
  said = rf"are splits, not classes .*Name one split: folder:{folder}/Train\.$"
  with pytest.raises(sources.SourceError, match=said):
    open_source(f"folder:{folder}")


@pytest.mark.parametrize("names", [("train", "val"), ("train2017", "TEST"), ("train",)])
def test_splits_without_folders_of_classes_are_no_classes_either(tmp_path, names):
  folder = tree(tmp_path, *(f"{name}/1.jpg" for name in names))
  with pytest.raises(sources.SourceError, match=r"are splits, not classes .*csv:FILE"):
    open_source(f"folder:{folder}")


@pytest.mark.parametrize(
  "files",
  [
    ("test_new/1.jpg", "test_old/2.jpg"),
    ("test_new/x/1.jpg", "test_old/2.jpg", "car/3.jpg"),
    ("train/old/1.jpg", "car/2.jpg"),
    ("cat/1.jpg", "train/2.jpg", "test/3.jpg"),
  ],
)
def test_classes_may_be_called_like_splits(tmp_path, files):
  assert len(open_source(f"folder:{tree(tmp_path, *files)}").class_names) == len(files)


def test_a_class_with_the_name_of_a_split_is_told(tmp_path):
  source = open_source(f"folder:{tree(tmp_path, 'cat/1.jpg', 'test_old/2.jpg', 'Test/3.jpg')}")
  assert source.class_names == ("Test", "cat", "test_old")
  (note,) = source.notes
  assert note == f"Folders of {str(tmp_path)!r} are read as classes, not as splits: 'Test'."
  assert open_source(f"folder:{tmp_path}", label_key="").notes == ()


def test_folders_in_class_folders_are_told(tmp_path):
  source = open_source(f"folder:{tree(tmp_path, *IMAGES, 'b/more/3/4.jpg')}", "[:100%]")
  assert "'b/more/3/4.jpg' is of class 'b'" in source.notes[-1]
  assert source.notes == Subset(source, 2).notes


@pytest.mark.parametrize(
  ("before", "after"),
  [
    ("cat/1 cat/2 dog/3 dog/4", "cat/1 dog/2 dog/3 dog/4"),
    ("cat/1 cat/2 dog/3", "cat/1 dog/2 dog/3"),
    ("a/1 b/2 b/3 c/4", "a/1 b/2 c/3 c/4"),
    ("a/x a/y a/z", "a/x/y a/z"),  # subfolders and files
  ],
)
def test_the_identity_tells_which_class_a_file_is_in(tmp_path, before, after):
  opened = []
  for files in (before, after):
    folder = tree(tmp_path / files[-7:], *(f"{file}.png" for file in files.split()))
    source = open_source(f"folder:{folder}")
    opened.append((source, Subset(source, 2), Mixed([source])))
  for one, other in zip(*opened, strict=True):
    assert one.identity != other.identity
