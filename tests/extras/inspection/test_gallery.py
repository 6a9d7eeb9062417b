"""The images that a user names: files, sources, and everything that is neither."""

import tarfile

import numpy as np
import pytest
from PIL import Image

from tests.data.opened import open_source, tree
from vit_jax.config import ConfigError
from vit_jax.data.crops import Box
from vit_jax.data.sources.digits import Digits
from vit_jax.extras.inspection.gallery import gallery, seen_box, source_in, spaced
from vit_jax.weights.card import Card


@pytest.fixture
def folder(tmp_path):
  """A photo twice as wide as high, a grey one, and one that is broken, without classes."""
  for name, shape in (("a", (20, 40, 3)), ("b", (20, 40))):
    Image.fromarray(np.full(shape, 100, np.uint8)).save(tmp_path / f"{name}.png")
  (tmp_path / "c.png").write_bytes((tmp_path / "a.png").read_bytes()[:40])
  return tmp_path


def test_files_in_their_order(folder):
  found = gallery([str(folder / "b.png"), str(folder / "a.png")], "", 10)
  assert [name[-5:] for name in found.names] == ["b.png", "a.png"]
  assert found.original(0).shape == (20, 40, 3)
  squares = found.squares(Card(image_size=16))
  assert (squares.shape, squares.dtype) == ((2, 16, 16, 3), np.uint8)
  assert found.in_words() == "2 images"


def test_a_broken_image_is_named(folder):
  found = gallery([str(folder)], "", 10)
  with pytest.raises(ConfigError, match=r"c.png cannot be shown: .*; leave it out\.$"):
    found.squares(Card(image_size=16))


@pytest.mark.parametrize("words", [["a.png"], ["digits"]])
def test_the_limit_of_pixels_can_be_changed(folder, monkeypatch, words):
  monkeypatch.chdir(folder)
  split, pixels = ("test", 64) if words == ["digits"] else ("", 800)
  assert gallery(words, split, 2, max_pixels=pixels).squares(Card(image_size=16)).any()
  found = gallery(words, split, 2, max_pixels=pixels - 1)
  for read in (lambda: found.original(0), lambda: found.squares(Card(image_size=16))):
    with pytest.raises(ConfigError, match="raise the limit of pixels to use this image; leave it"):
      read()


def test_a_source_has_labels_where_they_are_wanted():
  found = gallery(["digits"], "test", 12, labelled=True)
  assert (len(found), found.among, len(found.labels)) == (12, 360, 12)
  assert set(found.labels) <= set("0123456789")
  assert gallery(["digits"], "test", 12).labels == []
  assert found.original(3).shape == (8, 8, 3)
  assert found.in_words() == "12 of 360 images"


def test_a_table_is_recognised_and_its_columns_can_be_named(folder):
  table = folder / "list.csv"
  table.write_text("path,species,size\na.png,heron,2\nb.png,gull,1\n")
  found = gallery([f"{table},label_key=species"], "", 10, labelled=True)
  assert (list(found.labels), found.squares(Card(image_size=16)).shape[0]) == (["heron", "gull"], 2)
  assert len(gallery([f"{table},label_key=size"], "[50%:]", 10)) == 2
  table.write_text("path,label\na.png,heron\nb.png,gull\n")
  assert gallery([str(table)], "", 10, labelled=True).labels == ["heron", "gull"]
  (folder / "birds" / "gull").mkdir(parents=True)
  (folder / "a.png").rename(folder / "birds" / "gull" / "a.png")
  assert gallery([f"{folder / 'birds'},label_key="], "", 10, labelled=True).labels == []
  assert len(gallery([str(folder / "birds")], "", 10)) == 1


@pytest.mark.parametrize("labelled", [False, True])
def test_a_part_has_the_images_that_training_holds_out(tmp_path, labelled):
  folder = str(tree(tmp_path, *(f"{name}/{i}.jpg" for name in ("cat", "dog") for i in range(20))))
  held_out = open_source(f"folder:{folder}", "[90%:]")
  found = gallery([f"folder:{folder}"], "[90%:]", 100, labelled=labelled)
  assert found.names == [held_out.name(i) for i in range(len(held_out))]
  assert bool(found.labels) == labelled


def test_a_folder_of_records_is_recognised(folder):
  """One of images means the files in it, unless the keys of columns say that it is a source."""
  (folder / "records").mkdir()
  with tarfile.open(folder / "records" / "0.tar", "w") as tar:
    tar.add(folder / "a.png", "a.png")
  assert source_in(str(folder / "records"), named=False) == f"wds:{folder / 'records'}"
  found = gallery([str(folder / "records")], "", 10)
  assert (len(found), found.original(0).shape) == (1, (20, 40, 3))
  assert not source_in(str(folder), named=False)
  assert source_in(str(folder), named=True) == f"folder:{folder}"


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_of_no_class_are_not_shown(monkeypatch, label):
  """TFDS gives -1 for the images of a test set whose labels are kept secret."""
  monkeypatch.setattr(Digits, "labels", lambda self, index: (label if index == 3 else 0,))
  found = gallery(["digits"], "test", 360, labelled=True)
  assert found.labels == []
  assert len(found) == 360


def test_a_folder_without_classes(folder):
  (folder / "c.png").unlink()
  assert len(gallery([f"folder:{folder}"], "", 10)) == 2
  with pytest.raises(ConfigError, match="has no folders inside"):
    gallery([f"folder:{folder}"], "", 10, labelled=True)


@pytest.mark.parametrize(
  ("words", "split", "message"),
  [
    (["no.png"], "", "--images: 'no.png' does not exist"),
    (["no*.png"], "", "matches no file"),
    (["{}"], "test", "--split=test is for one source"),
    (["digits"], "dev", "dev"),
    (["folder:{}/none"], "", "no folder"),
  ],
)
def test_what_is_not_there(folder, words, split, message):
  with pytest.raises(ConfigError, match=message):
    gallery([word.replace("{}", str(folder)) for word in words], split, 10)


def test_a_file_is_a_file_also_if_a_source_has_its_name(folder, monkeypatch):
  assert source_in("digits", named=False) == "digits"
  assert not source_in("digits:x", named=False)
  assert not source_in("C:photos", named=False)
  (folder / "digits").mkdir()
  monkeypatch.chdir(folder)
  assert not source_in("digits", named=False)


@pytest.mark.parametrize(("length", "count"), [(3, 5), (5, 5), (300, 16), (17, 16)])
def test_many_images_are_thinned_evenly(length, count):
  found = spaced(range(length), count)
  assert len(found) == min(length, count)
  steps = np.diff(found)
  assert found[0] == 0
  assert steps.min() >= 1
  assert np.ptp(steps) <= 1


def test_the_part_that_the_model_sees():
  assert seen_box(20, 40, Card(image_size=16)) == Box(0, 0, 20, 40)
  assert seen_box(20, 40, Card(image_size=16, resize=20)) == Box(2, 12, 16, 16)
  assert seen_box(20, 40, Card(image_size=16, resize=20, squeeze=True)) == Box(2, 4, 16, 32)
  assert seen_box(40, 20, Card(image_size=20, resize=20)) == Box(10, 0, 20, 20)
