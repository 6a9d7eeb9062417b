"""Images of any source become a dataset for TFDS: complete, checked, in a random order."""

import collections
import json
import os
import re
import shutil
import types

import cv2
import numpy as np
import pytest
import simplejpeg
import tensorflow_datasets

from tests.data.made_sets import contents, folder, made, opened, write_images
from tests.data.numbered import Listed
from tests.data.tfds_fixture import jpeg_of
from vit_jax.data import sources
from vit_jax.data.jpeg import BadImage
from vit_jax.data.sources import Example, SourceError
from vit_jax.data.sources.subset import write_exclusions
from vit_jax.extras.preparation import builders, prepare
from vit_jax.extras.preparation.splits import OfClasses

pytestmark = pytest.mark.usefixtures("small_files")


def test_a_data_set_holds_every_image_once_in_a_random_order(tmp_path):
  write_images(tmp_path / "train", {"ant": 40, "bee": 40})
  write_images(tmp_path / "val", {"ant": 3, "bee": 5}, seed=1)
  splits = {"train": folder(tmp_path / "train"), "val": folder(tmp_path / "val")}
  report, (start, *done) = made(tmp_path, splits)
  assert (start, sum(done)) == (88, 88)
  assert len(list((tmp_path / "tfds/mine/1.0.0").glob("mine-train.array_record-*-of-*"))) > 2
  for split, source in splits.items():
    found = opened(split)
    assert found.class_names == ("ant", "bee")
    assert contents(found) == contents(source)
  half = opened("train[:50%]")
  assert 10 < sum(half[i].labels == (1,) for i in range(40)) < 30
  assert [report["splits"][split]["examples"] for split in splits] == [80, 8]
  left = {path.name for path in (tmp_path / "tfds/mine").iterdir()}
  assert left == {"1.0.0"}
  names = {path.name for path in (tmp_path / "tfds/mine/1.0.0").iterdir()}
  assert {name for name in names if "array_record" not in name} == {
    "dataset_info.json",
    "features.json",
    "label.labels.txt",
    "metadata.json",
    prepare.REPORT,
  }
  assert json.loads((tmp_path / "tfds/mine/1.0.0" / prepare.REPORT).read_text()) == report


def test_what_is_wrong_with_images_is_reported(tmp_path):
  paths = write_images(tmp_path / "in", {"ant": 9, "bee": 9})
  paths[3].write_bytes(b"rubbish")
  paths[4].write_bytes(paths[4].read_bytes()[:-60])
  paths[5].write_bytes(simplejpeg.encode_jpeg(np.zeros((400, 400, 3), np.uint8)))  # too large
  paths[6].write_bytes(cv2.imencode(".png", np.zeros((9, 9), np.uint8))[1].tobytes())
  paths[7].write_bytes(paths[12].read_bytes())
  write_images(tmp_path / "test", {"bee": 1, "ant": 1, "ape": 1}, seed=7)
  (tmp_path / "test/ape/000.jpg").write_bytes(paths[13].read_bytes())
  splits = {"train": folder(tmp_path / "in"), "test": folder(tmp_path / "test")}
  report, _ = made(tmp_path, splits)
  train = report["splits"]["train"]
  assert (train["examples"], train["broken"], train["misnamed"]) == (15, 3, 1)
  broken = {name.split(": ")[0] for name in train["names"]["broken"]}
  assert broken == {str(path) for path in paths[3:6]}
  assert train["names"]["misnamed"] == [f"{paths[6]}: PNG"]
  assert train["in_order_of_classes"]
  duplicates = report["duplicates"]
  assert {splits: found["images"] for splits, found in duplicates.items()} == {
    "train": 1,
    "test and train": 1,
  }
  pairs = {splits: [set(pair) for pair in found["names"]] for splits, found in duplicates.items()}
  assert pairs["train"] == [{str(paths[7]), str(paths[12])}]
  assert pairs["test and train"] == [{str(paths[13]), str(tmp_path / "test/ape/000.jpg")}]
  assert len(opened("train")) == 15
  # The classes of both splits, and the labels follow them.
  both = opened("test+train")
  assert both.class_names == ("ant", "ape", "bee")
  by_image = {both[i].image: both[i].labels for i in range(18)}
  assert by_image[(tmp_path / "test/ape/000.jpg").read_bytes()] in ((1,), (2,))  # exists twice
  assert by_image[paths[1].read_bytes()] == (0,)
  assert by_image[paths[16].read_bytes()] == (2,)


def test_an_example_that_the_source_cannot_read_is_left_out(tmp_path):
  source = of_classes("a", "b", "c")
  source._examples[1] = BadImage("row 1 has no image.")
  for splits in ({"train": source}, {"train": OfClasses(source, ["a", "b", "c"])}):
    shutil.rmtree(tmp_path / "tfds", ignore_errors=True)
    report, _ = made(tmp_path, splits)
    train = report["splits"]["train"]
    assert (train["examples"], train["names"]["broken"]) == (2, ["row 1 has no image."])
    assert train["in_order_of_classes"]
    assert {labels for _, labels in contents(opened("train"))} == {(0,), (2,)}


@pytest.mark.parametrize("label", [-1, 2])
def test_a_label_that_is_no_class_is_refused(tmp_path, label):
  source = of_classes("a", "b")
  source._examples[1] = source[1]._replace(labels=(label,))
  with pytest.raises(SourceError, match=f"1.jpg has the label {label}, which is none of the 2 cl"):
    made(tmp_path, {"train": source})
  report, _ = made(tmp_path, {"train": OfClasses(source, ["a", "b"])}, name="labelled")
  assert report["splits"]["train"]["examples"] == 1


def test_a_data_set_that_is_made_again_is_another_one(tmp_path):
  """Its name and version are the same, so only the digest tells it from the one before."""

  def again(root):
    shutil.rmtree(tmp_path / "tfds", ignore_errors=True)
    made(tmp_path, {"train": folder(root)})
    return opened("train")

  write_images(tmp_path / "in", {"ant": 4, "bee": 4})
  first = again(tmp_path / "in")
  excluded = str(tmp_path / "exclude.txt")
  write_exclusions(excluded, first, [0])
  shutil.copytree(tmp_path / "in", tmp_path / "same")
  assert len(sources.Remaining(again(tmp_path / "same"), excluded)) == 7
  write_images(tmp_path / "other images", {"ant": 4, "bee": 4}, seed=1)
  shutil.copytree(tmp_path / "in", tmp_path / "other labels")
  (tmp_path / "other labels/bee/000.jpg").rename(tmp_path / "other labels/ant/004.jpg")
  shutil.copytree(tmp_path / "in", tmp_path / "other names")
  (tmp_path / "other names/bee").rename(tmp_path / "other names/cat")
  for changed in ("other images", "other labels", "other names"):
    with pytest.raises(SourceError, match="is for other examples"):
      sources.Remaining(again(tmp_path / changed), excluded)


def test_it_goes_on_where_it_was_stopped(tmp_path):
  paths = write_images(tmp_path / "in", {"ant": 30, "bee": 30})
  whole = paths[50].read_bytes()
  source = folder(tmp_path / "in")
  made(tmp_path, {"train": source}, name="whole")
  paths[50].unlink()  # stops the preparation there
  with pytest.raises(FileNotFoundError, match=r"050|020"):
    made(tmp_path, {"train": source})
  assert not (tmp_path / "tfds/mine/1.0.0").exists()
  with pytest.raises(SourceError, match="has no version, only"):
    opened("train")
  with pytest.raises(SourceError, match='incomplete" is an unfinished dataset of other images'):
    made(tmp_path, {"train": folder(tmp_path / "in")})
  paths[50].write_bytes(whole)
  partial = tmp_path / "tfds/mine/1.0.0.incomplete/mine-train.array_record-00000-of-00009.x.partial"
  partial.write_bytes(b"of a process that was killed")
  report, (start, *_) = made(tmp_path, {"train": source})
  assert 0 < start < 60
  assert report["splits"]["train"]["examples"] == 60
  files = [sorted((tmp_path / f"tfds/{n}/1.0.0").glob("*array_record*")) for n in ("whole", "mine")]
  assert [one.read_bytes() for one in files[0]] == [one.read_bytes() for one in files[1]]


def test_refusals(tmp_path):
  write_images(tmp_path / "in", {"ant": 2})
  source = folder(tmp_path / "in")
  made(tmp_path, {"train": source})
  (tmp_path / "tfds/older/0.9.0").mkdir(parents=True)
  (tmp_path / "tfds/newer/3.0.1").mkdir(parents=True)
  for path in (tmp_path / "in/ant").iterdir():
    path.write_bytes(b"rubbish")
  for name, message in (
    ("mine", r'mine/1\.0\.0" is already there; give another name'),
    ("older", r'older/0\.9\.0" is already there'),  # which tfds:older names until now
    ("newer", r'newer/3\.0\.1" is already there'),
    *((name, "is not a name for a dataset") for name in ("../up", "Mine", "", "1a")),
    ("rubbish", 'Split "train" has no image that can be decoded'),
  ):
    with pytest.raises(SourceError, match=message):
      made(tmp_path, {"train": source}, name=name)


def test_a_split_whose_images_are_repaired_can_be_made(tmp_path):
  """What was found in the files of the other split is kept."""
  write_images(tmp_path / "train", {"ant": 20, "bee": 20})
  paths = write_images(tmp_path / "val", {"ant": 2})
  splits = {"train": folder(tmp_path / "train"), "val": folder(tmp_path / "val")}
  whole = [path.read_bytes() for path in paths]
  for path in paths:
    path.write_bytes(b"rubbish")
  for _ in range(2):
    with pytest.raises(SourceError, match='Split "val" has no image that can be decoded'):
      made(tmp_path, splits)
  for path, data in zip(paths, whole, strict=True):
    path.write_bytes(data)
  report, (start, *_) = made(tmp_path, splits)
  assert (start, report["splits"]["val"]["examples"], len(opened("train"))) == (2, 2, 40)
  assert contents(opened("val")) == contents(splits["val"])


def test_arrays_of_any_number_of_channels_are_kept(tmp_path):
  rng = np.random.default_rng(0)
  (tmp_path / "in/ant").mkdir(parents=True)
  for number, shape in enumerate([(9, 8, 13), (8, 9, 13), (8, 8), (400, 400, 13), (0, 8, 13)]):
    np.save(tmp_path / f"in/ant/{number}.npy", rng.integers(0, 256, shape, np.uint8))
  np.save(tmp_path / "in/ant/floats.npy", np.zeros((8, 8, 13)))
  source = folder(tmp_path / "in")
  report, _ = made(tmp_path, {"train": source})
  broken = report["splits"]["train"]["names"]["broken"]
  assert sorted(name.split(": ")[0].rpartition("/")[2] for name in broken) == [
    "3.npy",
    "4.npy",
    "floats.npy",
  ]
  found = contents(opened("train"))
  assert found == collections.Counter((source[i].image, source[i].labels) for i in range(3))


def test_pixels_become_png_files(tmp_path):
  digits = sources.Subset(sources.open_source("digits", split="test"), 50)
  made(tmp_path, {"test": digits})
  found = opened("test")
  pixels = collections.Counter(
    (cv2.imdecode(np.frombuffer(image, np.uint8), 0).tobytes(), labels)
    for image, labels in contents(found)
  )
  every = [digits[index] for index in range(50)]
  assert pixels == collections.Counter((one.image.tobytes(), one.labels) for one in every)


def test_a_download_that_fails_is_one_kind_of_error(monkeypatch):
  def fail():
    raise KeyError("x")

  builder = types.SimpleNamespace(download_and_prepare=fail)
  monkeypatch.setattr(tensorflow_datasets, "builder", lambda *args, **options: builder)
  with pytest.raises(RuntimeError, match="mnist could not be prepared"):
    builders.build("mnist", "somewhere")


# --- class names and kinds of labels ---


def of_classes(*names, multi_label=False):
  """Images, one of each of these classes."""
  jpeg = jpeg_of(np.random.default_rng(0))
  source = Listed([Example(jpeg, (i,), f"{i}.jpg") for i in range(len(names))])
  source.class_names, source.multi_label = names, multi_label
  return source


@pytest.mark.parametrize(
  ("names", "why"),
  [
    ((" ", "cat"), "it is empty"),
    (("\u2003", "cat"), "it is empty"),
    (("cat ", "dog"), "it begins or ends with white space"),
    (("cat\u2028", "dog"), "it begins or ends with white space"),
    (("wild\ncat", "dog"), "it has a line break"),
    (("wild\rcat", "dog"), "it has a line break"),
    ((os.fsdecode(b"caf\xe9"), "dog"), "it is not valid UTF-8"),
    (("cat", "cat"), "another class has this name"),
  ],
)
def test_class_names_that_would_be_read_back_otherwise_are_refused(tmp_path, names, why):
  message = f'Split "train" has a class {names[0]!r}, which a dataset cannot hold: {why}; rename'
  with pytest.raises(SourceError, match=re.escape(message)):
    made(tmp_path, {"val": of_classes("cat", "dog"), "train": of_classes(*names)})
  assert not (tmp_path / "tfds").exists()


def test_odd_class_names_are_read_back_as_they_were(tmp_path):
  names = ("#", "a  b", "cat", "wasp, small", "Ärger", "日 本")
  made(tmp_path, {"train": of_classes(*names)})
  prepared = opened("train")
  assert prepared.class_names == names
  assert {prepared.labels(i) for i in range(6)} == {(i,) for i in range(6)}


def test_splits_with_different_kinds_of_labels_are_refused(tmp_path):
  splits = [("one", of_classes("a", "b")), ("several", of_classes("a", "b", multi_label=True))]
  for order in (splits, splits[::-1]):
    with pytest.raises(SourceError, match=r'split "several" have any .* split "one" exactly one'):
      made(tmp_path, dict(order))
  assert not (tmp_path / "tfds").exists()


def test_a_split_without_labels_is_refused(tmp_path):
  unlabelled = sources.Unlabelled(of_classes("a", "b"))
  message = 'Split "val" has no labels, .* CSV file with the same label in every row'
  with pytest.raises(SourceError, match=message):
    made(tmp_path, {"train": of_classes("a", "b"), "val": unlabelled})
  assert not (tmp_path / "tfds").exists()
