"""A data set from images: what tfds:NAME then reads, whole or not there, and what is reported."""

import collections
import importlib.util
import io
import json
import re
import sys
import tarfile
import threading

import cv2
import numpy as np
import pytest
import simplejpeg

from tests import programs
from tests.data.tfds_fixture import jpeg_of
from tools import prepare_data
from vit_jax.data import sources
from vit_jax.data.preparation import listing, prepare
from vit_jax.data.sources import SourceError
from vit_jax.data.sources.folder import Folder


@pytest.fixture(autouse=True)
def small_files(monkeypatch, tmp_path):
  monkeypatch.setattr(prepare, "_FILE_BYTES", 20_000)  # several files
  monkeypatch.setattr(prepare, "_SAMPLE", 4)
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def write_images(root, counts, seed=0):
  """ROOT/CLASS/i.jpg; the paths in order."""
  rng, paths = np.random.default_rng(seed), []
  for name, count in counts.items():
    (root / name).mkdir(parents=True, exist_ok=True)
    for index in range(count):
      paths.append(root / name / f"{index:03}.jpg")
      paths[-1].write_bytes(jpeg_of(rng))
  return paths


def made(tmp_path, splits, name="mine"):
  told = []
  report = prepare.prepare(
    splits,
    str(tmp_path / "tfds"),
    name,
    max_pixels=10**5,
    threads=2,
    started=told.append,
    done=told.append,
  )
  return report, told


def opened(split, name="mine"):
  return sources.open_source(f"tfds:{name}", split=split, num_classes=1)


def contents(source):
  return collections.Counter((source[i].image, source[i].labels) for i in range(len(source)))


def folder(path):
  return Folder(str(path), split="")


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
  assert by_image[(tmp_path / "test/ape/000.jpg").read_bytes()] in ((1,), (2,))  # is there twice
  assert by_image[paths[1].read_bytes()] == (0,)
  assert by_image[paths[16].read_bytes()] == (2,)


def test_it_goes_on_where_it_was_stopped(tmp_path):
  paths = write_images(tmp_path / "in", {"ant": 30, "bee": 30})
  whole = paths[50].read_bytes()
  source = folder(tmp_path / "in")
  made(tmp_path, {"train": source}, name="whole")
  paths[50].unlink()  # as if the run was stopped there
  with pytest.raises(FileNotFoundError, match=r"050|020"):
    made(tmp_path, {"train": source})
  assert not (tmp_path / "tfds/mine/1.0.0").exists()
  with pytest.raises(SourceError, match="has no version but"):
    opened("train")
  paths[50].write_bytes(whole)
  partial = tmp_path / "tfds/mine/1.0.0.incomplete/mine-train.array_record-00000-of-00009.x.partial"
  partial.write_bytes(b"of a process that was killed")
  report, (start, *_) = made(tmp_path, {"train": source})
  assert 0 < start < 60
  assert report["splits"]["train"]["examples"] == 60
  files = [sorted((tmp_path / f"tfds/{n}/1.0.0").glob("*array_record*")) for n in ("whole", "mine")]
  assert [one.read_bytes() for one in files[0]] == [one.read_bytes() for one in files[1]]


def test_a_half_made_data_set_of_other_images_is_not_gone_on_with(tmp_path):
  paths = write_images(tmp_path / "in", {"ant": 30})
  source = folder(tmp_path / "in")
  paths[20].unlink()
  with pytest.raises(FileNotFoundError):
    made(tmp_path, {"train": source})
  with pytest.raises(SourceError, match='incomplete" is a data set of other images, half made'):
    made(tmp_path, {"train": folder(tmp_path / "in")})


def test_a_half_made_data_set_in_the_order_of_an_earlier_release_is_not_gone_on_with(tmp_path):
  paths = write_images(tmp_path / "in", {"ant": 30})
  source, whole = folder(tmp_path / "in"), paths[20].read_bytes()
  paths[20].unlink()
  with pytest.raises(FileNotFoundError):
    made(tmp_path, {"train": source})
  paths[20].write_bytes(whole)
  plan = tmp_path / "tfds/mine/1.0.0.incomplete/plan.json"
  values = json.loads(plan.read_text())
  plan.write_text(json.dumps({key: values[key] for key in ("splits", "max_pixels", "files")}))
  with pytest.raises(SourceError, match="that an earlier release began in another order; delete"):
    made(tmp_path, {"train": source})
  plan.write_text(json.dumps(values))
  assert made(tmp_path, {"train": source})


def test_refusals(tmp_path):
  write_images(tmp_path / "in", {"ant": 2})
  source = folder(tmp_path / "in")
  made(tmp_path, {"train": source})
  with pytest.raises(SourceError, match=r'mine/1\.0\.0" is already there; give another name'):
    made(tmp_path, {"train": source})
  for name in ("../up", "Mine", "", "1a"):
    with pytest.raises(SourceError, match="is no name for a data set"):
      made(tmp_path, {"train": source}, name=name)
  for path in (tmp_path / "in/ant").iterdir():
    path.write_bytes(b"rubbish")
  with pytest.raises(SourceError, match='Split "train" has no image that can be decoded'):
    made(tmp_path, {"train": source}, name="rubbish")


def test_pixels_become_png_files(tmp_path):
  digits = sources.Subset(sources.open_source("digits", split="test", num_classes=10), 50)
  made(tmp_path, {"test": digits})
  found = opened("test")
  pixels = collections.Counter(
    (cv2.imdecode(np.frombuffer(image, np.uint8), 0).tobytes(), labels)
    for image, labels in contents(found)
  )
  every = [digits[index] for index in range(50)]
  assert pixels == collections.Counter((one.image.tobytes(), one.labels) for one in every)


# --- tables ---


def table(tmp_path, text):
  (tmp_path / "list.csv").write_text(text)
  return listing.Listing(str(tmp_path / "list.csv"))


def test_a_table_names_images_and_classes(tmp_path):
  (path, *_) = write_images(tmp_path / "in", {"x": 2})
  text = f'path,label\nin/x/001.jpg,"wasp, small"\n{path},ant\n\n'
  found = table(tmp_path, text)
  assert found.class_names == ("ant", "wasp, small")
  assert [found[i].labels for i in range(len(found))] == [(1,), (0,)]
  assert found[1].image == path.read_bytes()
  assert found.identity == table(tmp_path, text.removeprefix("path,label\n")).identity
  assert found.identity != table(tmp_path, "in/x/001.jpg,ant\n").identity


@pytest.mark.parametrize("header", ["path,label", "filename,class", "image_id,Label", "x/y,z"])
def test_a_header_is_no_image(tmp_path, header, caplog):
  write_images(tmp_path / "in", {"x": 2})
  for rows in ("in/x/000.jpg,ant\nin/x/001.jpg,bee\n", "gone.PNG,ant\ngone-too.tif,bee\n"):
    assert table(tmp_path, f"{header}\n{rows}").identity == table(tmp_path, rows).identity
  said = [record.getMessage() for record in caplog.records]
  assert len(said) == (0 if header == "path,label" else 2)
  assert all("is taken for a header" in line for line in said)


@pytest.mark.parametrize("first", ["gone.jpg", "in/x/there", "neither"])
def test_a_first_row_that_may_be_an_image_is_one(tmp_path, first):
  (tmp_path / "in/x").mkdir(parents=True)
  (tmp_path / "in/x/there").touch()
  second = "nor this" if first == "neither" else "in/x/there"
  assert len(table(tmp_path, f"{first},ant\n{second},bee\n")) == 2


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("a.jpg,1\nb.jpg\n", r"has \['b\.jpg'\] in row 2"),
    ("a.jpg,\n", "in row 1; each row is the path"),
    ("", "names no images"),
    ("path,label\n", "names no images"),
  ],
)
def test_wrong_tables(tmp_path, text, message):
  with pytest.raises(SourceError, match=message):
    table(tmp_path, text)


def test_a_table_that_is_not_there(tmp_path):
  with pytest.raises(SourceError, match=r"cannot be read as a CSV file: .*No such file"):
    listing.Listing(f"{tmp_path}/none.csv")


# --- the command ---


def test_tfds_is_imported_before_there_are_threads(tmp_path, monkeypatch):
  """Two threads that import it at once wait for one another for ever, one time in forty."""
  write_images(tmp_path / "in", {"ant": 3, "bee": 3})
  asked, features = set(), prepare._features

  def noted(*args):
    asked.add(threading.current_thread())
    return features(*args)

  monkeypatch.setattr(prepare, "_features", noted)
  made(tmp_path, {"train": folder(tmp_path / "in")})
  assert asked == {threading.main_thread()}


def test_the_command_makes_what_a_run_reads(tmp_path):
  write_images(tmp_path / "in", {"ant": 3, "bee": 3})
  (tmp_path / "val.csv").write_text("in/ant/000.jpg,ant\nin/bee/001.jpg,bee\n")
  for name in ("ant", "bee"):
    (tmp_path / "in" / name / "notes.txt").touch()
  tool = [sys.executable, "tools/prepare_data.py", "images", "mine"]
  split = [f"--split=train=folder:{tmp_path}/in", f"--split=val=csv:{tmp_path}/val.csv"]
  done = programs.run([*tool, *split])
  assert done.returncode == 0, done.stderr
  assert "train: 6 images; left out as broken: 0" in done.stdout
  assert "  No images: 2 with the suffix '.txt'\n" in done.stdout
  assert "In train and val 2 images are repeated." in done.stdout
  again = f"{tmp_path}/in/ant/000.jpg"
  assert f"  {again}: as {again}" in done.stdout
  assert f"{tmp_path}/tfds/mine/1.0.0 (--config.data.train.source=tfds:mine)" in done.stdout
  assert len(opened("train+val")) == 8


def test_wrong_splits(tmp_path):
  for text in ("train", "train=DIR", "train=zip:x", "=folder:x", "tr ain=folder:x", "train=csv:"):
    with pytest.raises(SourceError, match="is not SPLIT=folder:DIR or SPLIT=csv:FILE"):
      prepare_data.open_split(text)


def test_a_split_that_is_given_twice_is_refused(tmp_path):
  write_images(tmp_path / "in", {"ant": 1})
  texts = [f"train=folder:{tmp_path}/in", f"val=folder:{tmp_path}/in"]
  assert list(prepare_data.open_splits(texts)) == ["train", "val"]
  with pytest.raises(SourceError, match="--split train is given 2 times"):
    prepare_data.open_splits([*texts, texts[0]])


@pytest.mark.parametrize(
  ("words", "message"),
  [
    (["build", "imagenet2012"], r"ILSVRC2012_img_train\.tar"),
    (["build", "no_such_set"], "has no data set 'no_such_set'"),
    (["convert", "NOWHERE"], "NOWHERE holds no dataset_info.json; name the folder of a version"),
  ],
)
def test_what_tfds_cannot_make_is_told_without_a_traceback(tmp_path, words, message):
  there = [f"--data_dir={tmp_path}"] if words[0] == "build" else []
  result = programs.run([sys.executable, "tools/prepare_data.py", *words, *there])
  assert result.returncode == 2
  assert re.search(rf"prepare_data: .*{message}", result.stderr, re.DOTALL)
  assert "Traceback" not in result.stderr


def pack(path, files):
  """A tar archive of {name: bytes}."""
  with tarfile.open(path, "w") as archive:
    for name, data in files.items():
      entry = tarfile.TarInfo(name)
      entry.size = len(data)
      archive.addfile(entry, io.BytesIO(data))


@pytest.mark.skipif(
  importlib.util.find_spec("tensorflow") is None,
  reason="TensorFlow is not installed (extra `prepare`)",
)
@pytest.mark.parametrize("kind", ["build", "convert"])
def test_imagenet_from_an_archive_that_the_user_has(tmp_path, kind):
  """By TFDS's own builder, as ArrayRecord; or as TFRecord, which is then converted."""
  manual = tmp_path / "tfds" / "downloads" / "manual"
  manual.mkdir(parents=True)
  rng = np.random.default_rng(0)
  pictures = {f"ILSVRC2012_val_{n:08d}.JPEG": jpeg_of(rng) for n in range(1, 6)}
  pack(manual / "ILSVRC2012_img_val.tar", pictures)
  words = ["build", "imagenet2012", f"--data_dir={tmp_path}/tfds"]
  if kind == "convert":
    builder = "tfds.builder('imagenet2012', data_dir=sys.argv[1], file_format='tfrecord')"
    code = f"import sys, tensorflow_datasets as tfds; {builder}.download_and_prepare()"
    programs.run([sys.executable, "-c", code, tmp_path / "tfds"]).check_returncode()
    words = ["convert", *(tmp_path / "tfds" / "imagenet2012").iterdir()]
  result = programs.run([sys.executable, "tools/prepare_data.py", *words])
  assert result.returncode == 0, result.stderr
  found = sources.open_source("tfds:imagenet2012", split="validation", num_classes=1000)
  images = [found[index].image for index in range(len(found))]
  assert sorted(images) == sorted(pictures.values())
